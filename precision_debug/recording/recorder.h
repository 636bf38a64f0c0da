// Keeps the tensors of a C++ program on disk, as recorder.py beside it does in Python: one header, C++11, nothing else.
//
//     precision_debug::Recorder record("dump");                        // rank: RANK of the environment, or 0
//     record("Conv", "conv1_out", data, {1, 16, 8, 8});                // float, double, int8_t, uint8_t, int32_t, …
//     record("Conv", "half_out", bits, {1, 16}, "float16");            // uint16_t bits of what C++ has no type for
//     record.step();                                                   // the next frame, token or batch
//
//     dump/step_0000/rank_0/sample_0/index.jsonl     one JSON object a line: name, op_type, file, dtype, shape
//     dump/step_0000/rank_0/sample_0/000001.npy
//
// `precision_debug dumps dump --model_file M.onnx` reads it. A line is written behind its file, and both are flushed: a
// crash loses nothing that came before it. Licence: Apache-2.0.
// Copied from https://github.com/precision-debug/precision_debug
#ifndef PRECISION_DEBUG_RECORDER_H_
#define PRECISION_DEBUG_RECORDER_H_

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace precision_debug {

template <typename T> struct Dtype;
template <> struct Dtype<float> { static const char* name() { return "float32"; } static const char* npy() { return "<f4"; } };
template <> struct Dtype<double> { static const char* name() { return "float64"; } static const char* npy() { return "<f8"; } };
template <> struct Dtype<int8_t> { static const char* name() { return "int8"; } static const char* npy() { return "|i1"; } };
template <> struct Dtype<uint8_t> { static const char* name() { return "uint8"; } static const char* npy() { return "|u1"; } };
template <> struct Dtype<int16_t> { static const char* name() { return "int16"; } static const char* npy() { return "<i2"; } };
template <> struct Dtype<uint16_t> { static const char* name() { return "uint16"; } static const char* npy() { return "<u2"; } };
template <> struct Dtype<int32_t> { static const char* name() { return "int32"; } static const char* npy() { return "<i4"; } };
template <> struct Dtype<int64_t> { static const char* name() { return "int64"; } static const char* npy() { return "<i8"; } };
template <> struct Dtype<bool> { static const char* name() { return "bool"; } static const char* npy() { return "|b1"; } };

class Recorder {
 public:
  explicit Recorder(const std::string& folder, int rank = -1, int sample = 0)
      : folder_(folder), rank_(rank < 0 ? rank_of_environment() : rank), sample_(sample) {}

  // dtype: what the elements are where T only carries their bits ("float16", "bfloat16"); "" where T says it.
  // Throws std::runtime_error where the disk refuses, or holds an earlier run of this rank and sample.
  template <typename T>
  void operator()(const std::string& op_type, const std::string& name, const T* data,
                  const std::vector<int64_t>& shape, const std::string& dtype = "") {
    int64_t count = 1;
    std::string dims;
    for (size_t place = 0; place < shape.size(); ++place) {
      count *= shape[place];
      dims += std::to_string(shape[place]) + (place + 1 < shape.size() ? ", " : shape.size() == 1 ? "," : "");
    }
    make_place();
    char file[32];
    std::snprintf(file, sizeof file, "%06d.npy", ++count_);
    // float16 is numpy's own; other carried types stay bits, and the line says what they are
    const std::string descr = dtype == "float16" ? "<f2" : Dtype<T>::npy();
    write_npy(place() + "/" + file, descr, dims, data, static_cast<size_t>(count) * sizeof(T));
    std::string line = "{\"name\": " + quoted(name) + ", \"op_type\": " + quoted(op_type) + ", \"dtype\": " +
                       quoted(dtype.empty() ? Dtype<T>::name() : dtype) + ", \"shape\": [";
    for (size_t at = 0; at < shape.size(); ++at) line += (at ? ", " : "") + std::to_string(shape[at]);
    append(place() + "/index.jsonl", line + "], \"file\": \"" + file + "\"}\n");
  }

  void step() { ++step_, count_ = 0; }
  void step(int number) { step_ = number, count_ = 0; }

 private:
  static int rank_of_environment() {
    const char* told = std::getenv("RANK");
    return told ? std::atoi(told) : 0;
  }

  std::string place() const {
    char step[32];
    std::snprintf(step, sizeof step, "/step_%04d", step_);
    return folder_ + step + "/rank_" + std::to_string(rank_) + "/sample_" + std::to_string(sample_);
  }

  void make_place() const {
    const std::string all = place();
    for (size_t at = all.find('/', 1); ; at = all.find('/', at + 1)) {
      const std::string part = all.substr(0, at);
      if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) fail(part);
      if (at == std::string::npos) return;
    }
  }

  static void write_npy(const std::string& path, const std::string& descr, const std::string& dims, const void* data,
                        size_t bytes) {
    std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + dims + "), }";
    header += std::string(63 - (header.size() + 10) % 64, ' ') + "\n";  // numpy/lib/format.py: version 1.0, 64 bytes
    const size_t length = header.size();
    std::FILE* out = std::fopen(path.c_str(), "wbx");
    if (!out) fail(path);
    const unsigned char magic[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<unsigned char>(length & 255),
                                     static_cast<unsigned char>(length >> 8)};
    bool good = std::fwrite(magic, 1, 10, out) == 10 && std::fwrite(header.data(), 1, length, out) == length &&
                (!bytes || std::fwrite(data, 1, bytes, out) == bytes) && std::fflush(out) == 0;
    ::fsync(::fileno(out));
    if (std::fclose(out) != 0 || !good) fail(path);
  }

  static void append(const std::string& path, const std::string& line) {
    std::FILE* out = std::fopen(path.c_str(), "ab");
    if (!out) fail(path);
    bool good = std::fwrite(line.data(), 1, line.size(), out) == line.size() && std::fflush(out) == 0;
    ::fsync(::fileno(out));
    if (std::fclose(out) != 0 || !good) fail(path);
  }

  static std::string quoted(const std::string& text) {
    std::string found = "\"";
    for (unsigned char one : text) {
      char code[8];
      if (one == '"' || one == '\\') found += '\\', found += static_cast<char>(one);
      else if (one < 32) std::snprintf(code, sizeof code, "\\u%04x", one), found += code;
      else found += static_cast<char>(one);
    }
    return found + "\"";
  }

  [[noreturn]] static void fail(const std::string& path) { throw std::runtime_error("precision_debug: cannot write " + path); }

  std::string folder_;
  int rank_, sample_, step_ = 0, count_ = 0;
};

}  // namespace precision_debug

#endif  // PRECISION_DEBUG_RECORDER_H_
