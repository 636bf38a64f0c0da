"""A training step as a command asks for it: its phases, and the settings of every backend that runs one."""

from __future__ import annotations

from .setting import Setting

__all__ = ["BACKWARD", "FORWARD", "OPTIMISER", "PHASES", "SCALE", "mode_setting", "step_settings"]

FORWARD, BACKWARD, OPTIMISER = PHASES = ("forward", "backward", "optimiser")

SCALE = 65536.0
"""What GradScaler begins with, torch's as Paddle's (init_scale, init_loss_scaling)."""


def mode_setting(modes: tuple[str, ...] = ()) -> Setting:
    """Return the setting by which a module that its factory returns in training mode runs so. modes: see Setting."""
    return Setting(
        name="training", kind="flag", default=False, modes=modes,
        help="leave the module in training mode as the factory made it", zh="模块保持工厂函数给出的训练模式",
    )  # fmt: skip


def step_settings(*, scaled: str, module: str, modes: tuple[str, ...] = ()) -> tuple[Setting, ...]:
    """Return the settings of a training step, for a framework's backend.

    scaled: the run modes whose loss is scaled where nobody says. module: what the framework calls a model. modes: see
    Setting."""
    returned = f"({module}, inputs, loss, optimiser)"
    return (
        Setting(
            name="step", kind="choice", default=FORWARD, choices=PHASES, flag=True, modes=modes,
            help="how much of a training step is run and compared: the forward pass, also the gradients, or also the"
                 f" optimiser's update; the factory returns {returned}, or a {module} whose forward returns the loss",
            zh=f"运行并对比训练步的多少：仅前向、再加梯度、或再加优化器更新；工厂函数返回 {returned}，或 forward "
               f"直接给出损失的 {module}",
        ),
        Setting(
            name="loss_scale", kind="number", low=1, modes=modes,
            help="what GradScaler multiplies the loss of a training step with, on both sides (default: 65536, as it"
                 f" begins, where the target is {scaled}, otherwise 1)",
            zh=f"训练步中 GradScaler 对损失的放大倍数，两侧相同（默认：目标为 {scaled} 时取其初值 65536，否则为 1）",
        ),
        Setting(
            name="clip_norm", kind="number", modes=modes,
            help="the norm that clip_grad_norm_ clips a training step's gradients to (default: it is not called)",
            zh="训练步中 clip_grad_norm_ 裁剪梯度的范数上限（默认不裁剪）",
        ),
    )  # fmt: skip
