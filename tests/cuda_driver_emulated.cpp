/* The part of the CUDA driver's interface that numbers/cuda.py calls, over the host's memory and the kernels' own
 * text: it shows that each call is made with the arguments that the interface has.
 */
#include "cuda_emulated.cpp"

#include <cstdlib>
#include <map>

typedef void *Handle;
enum { FINE = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 101, NOT_FOUND = 500 };
static const size_t LIMIT = 1 << 28;
static std::map<void *, size_t> held, pinned;
static thread_local Handle current;
static int context, stream, events;

static const struct {
    const char *name;
    void (*kernel)(Job);
} KERNELS[] = {
#define NAMED(NAME) {#NAME, NAME}
    NAMED(settle), NAMED(exact), NAMED(scan_f32_f32_isclose), NAMED(scan_f32_f32_either),
    NAMED(scan_f16_f16_isclose), NAMED(scan_f16_f16_either), NAMED(scan_bf16_bf16_isclose),
    NAMED(scan_bf16_bf16_either), NAMED(scan_f32_f16_isclose), NAMED(scan_f32_f16_either),
    NAMED(scan_f32_bf16_isclose), NAMED(scan_f32_bf16_either),
};

extern "C" {
int cuInit(unsigned flags) { return flags ? INVALID : FINE; }
int cuGetErrorString(int status, const char **text) {
    *text = status == NO_MEMORY ? "out of memory" : status == NO_DEVICE ? "invalid device ordinal" : "it failed";
    return FINE;
}
int cuDeviceGet(int *device, int ordinal) { return *device = 40 + ordinal, ordinal ? NO_DEVICE : FINE; }
int cuDevicePrimaryCtxRetain(Handle *found, int device) { return *found = &context, device == 40 ? FINE : INVALID; }
int cuDeviceGetAttribute(int *found, int which, int device) {
    *found = which == 16 ? 2 : which == 75 ? 9 : 0;
    return device == 40 && (which == 16 || which == 75 || which == 76) ? FINE : INVALID;
}
int cuDeviceGetName(char *name, int length, int device) {
    if (device != 40 || length < 9)
        return INVALID;
    strcpy(name, "emulated");
    return FINE;
}
int cuCtxGetCurrent(Handle *found) { return *found = current, FINE; }
int cuCtxSetCurrent(Handle to) { return current = to, FINE; }
int cuModuleLoadData(Handle *module, const void *image) {
    *module = &context;
    return current == &context && !memcmp(image, "\x7f" "ELF", 4) ? FINE : INVALID;
}
int cuModuleGetFunction(Handle *found, Handle module, const char *name) {
    for (const auto &one : KERNELS)
        if (module == &context && !strcmp(one.name, name))
            return *found = (Handle)one.kernel, FINE;
    return NOT_FOUND;
}
int cuLaunchKernel(Handle kernel, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned y_threads,
                   unsigned z_threads, unsigned shared, Handle, void **arguments, void **extra) {
    if (current != &context || y * z * threads * y_threads * z_threads != 1 || shared || extra || !x)
        return INVALID;
    launch((void (*)(Job))kernel, (int)x, (const Job *)arguments[0]);
    return FINE;
}
int cuMemAlloc_v2(Handle *found, size_t size) {
    if (current != &context || !size)
        return INVALID;
    if (size > LIMIT)
        return NO_MEMORY;
    held[*found = aligned_alloc(256, (size + 255) / 256 * 256)] = size;
    return FINE;
}
int cuMemFree_v2(Handle memory) {
    if (!held.erase(memory))
        return INVALID;
    free(memory);
    return FINE;
}
int cuMemHostAlloc(Handle *found, size_t size, unsigned flags) {
    pinned[*found = aligned_alloc(256, (size + 255) / 256 * 256)] = size;
    return flags == 3 ? FINE : INVALID;
}
static int copied(void *to, const void *from, size_t size) { return memmove(to, from, size), FINE; }
int cuMemcpyHtoDAsync_v2(Handle to, const void *from, size_t size, Handle) { return copied(to, from, size); }
int cuMemcpyDtoHAsync_v2(void *to, Handle from, size_t size, Handle) { return copied(to, from, size); }
int cuMemcpyDtoDAsync_v2(Handle to, Handle from, size_t size, Handle) { return copied(to, from, size); }
int cuMemsetD32Async(Handle at, unsigned value, size_t words, Handle) {
    for (size_t i = 0; i < words; i++)
        ((unsigned *)at)[i] = value;
    return FINE;
}
int cuStreamCreate(Handle *found, unsigned flags) { return *found = &stream, flags == 1 ? FINE : INVALID; }
int cuCtxSynchronize(void) { return current == &context ? FINE : INVALID; }
int cuStreamSynchronize(Handle one) { return !one || one == &stream ? FINE : INVALID; }
int cuStreamWaitEvent(Handle, Handle event, unsigned flags) { return event && !flags ? FINE : INVALID; }
int cuEventCreate(Handle *found, unsigned flags) { return *found = malloc(1), events++, flags == 2 ? FINE : INVALID; }
int cuEventRecord(Handle event, Handle) { return event && current == &context ? FINE : INVALID; }
int cuEventSynchronize(Handle event) { return event ? FINE : INVALID; }
int cuEventQuery(Handle event) { return event ? FINE : INVALID; }
int cuEventDestroy_v2(Handle event) { return free(event), events--, FINE; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *all) { return *free_bytes = 1000, *all = 3000, FINE; }
int cuPointerGetAttribute(void *found, int which, Handle memory) {
    *(int *)found = which == 9 ? 0 : pinned.count(memory) ? 1 : 2;
    return (which == 2 || which == 9) && (pinned.count(memory) || held.count(memory)) ? FINE : INVALID;
}
int emulated_held(void) { return (int)held.size(); }
int emulated_events(void) { return events; }
}
