// An engine of somebody's in C++: a small network by hand, whose tensors a recorder keeps. Reads input.raw and
// weights.raw (float32), writes dump/.  Build: g++ -std=c++11 -I<folder of recorder.h> engine.cpp -o engine
#include <cmath>
#include <cstdio>
#include <vector>

#include "recorder.h"

static std::vector<float> read(const char* path, size_t count) {
  std::vector<float> found(count);
  std::FILE* file = std::fopen(path, "rb");
  if (!file || std::fread(found.data(), sizeof(float), count, file) != count) throw std::runtime_error(path);
  std::fclose(file);
  return found;
}

int main(int argc, char**) {
  const int batch = 4, width = 16, hidden = 32, classes = 10;
  const std::vector<float> x = read("input.raw", batch * width);
  const std::vector<float> w = read("weights.raw", width * hidden + hidden * classes);
  precision_debug::Recorder record("dump");
  record("Input", "x", x.data(), {batch, width});

  std::vector<float> first(batch * hidden), second(batch * classes);
  for (int b = 0; b < batch; ++b)
    for (int h = 0; h < hidden; ++h) {
      float sum = 0;
      for (int i = 0; i < width; ++i) sum += x[b * width + i] * w[i * hidden + h];
      first[b * hidden + h] = sum;
    }
  record("MatMul", "dense", first.data(), {batch, hidden});
  const bool wrong = argc > 1;  // a leaky activation in place of the model's
  for (float& one : first) one = one > 0 ? one : wrong ? 0.1f * one : 0;
  record("Relu", "act", first.data(), {batch, hidden});
  for (int b = 0; b < batch; ++b)
    for (int c = 0; c < classes; ++c) {
      float sum = 0;
      for (int h = 0; h < hidden; ++h) sum += first[b * hidden + h] * w[width * hidden + h * classes + c];
      second[b * classes + c] = sum;
    }
  record("MatMul", "logits", second.data(), {batch, classes});
  return 0;
}
