// Runs a method of one float32 tensor from C++: handles that free themselves, errors as exceptions, outputs into a vector.
//
//     c++ run.cpp $(pkg-config --cflags --libs pteron) -o run && ./run model.pte
#include <pteron.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

// An error of the library.
class Error : public std::runtime_error {
 public:
  explicit Error(int32_t number) : std::runtime_error(pteron_error_text()), code(number) {}
  const int32_t code;
};

void check(int32_t code) {
  if (code != PTERON_OK) throw Error(code);
}

// A handle that frees itself; it moves, and is not copied.
template <typename T, int32_t (*Free)(T *)>
class Handle {
 public:
  Handle() = default;
  Handle(Handle &&other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  Handle &operator=(Handle &&other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  Handle(const Handle &) = delete;
  Handle &operator=(const Handle &) = delete;
  ~Handle() { Free(handle); }

  T *get() const { return handle; }
  T **place() { return &handle; }

 private:
  T *handle = nullptr;
};

using Program = Handle<pteron_program, pteron_program_free>;
using Method = Handle<pteron_method, pteron_method_free>;

Program open(const std::string &path) {
  Program program;
  check(pteron_program_open(path.c_str(), program.place()));
  return program;
}

Method load(const Program &program, const std::string &name) {
  Method method;
  check(pteron_method_load(program.get(), name.c_str(), nullptr, method.place()));
  return method;
}

std::vector<float> run(const Method &method, const std::vector<float> &x, const std::vector<int64_t> &shape) {
  const pteron_arg input = pteron_arg_tensor(PTERON_FLOAT32, x.data(), x.size() * sizeof(float), shape.data(),
                                             static_cast<int32_t>(shape.size()));
  check(pteron_method_execute(method.get(), &input, 1, nullptr));
  pteron_arg output;
  check(pteron_method_output(method.get(), 0, &output));
  if (output.kind != PTERON_KIND_TENSOR || output.tensor.dtype != PTERON_FLOAT32)
    throw std::runtime_error("the first output is no float32 tensor");
  const float *data = static_cast<const float *>(output.tensor.data);
  return {data, data + output.tensor.nbytes / sizeof(float)};
}

}  // namespace

int main(int argc, char **argv) try {
  if (argc != 2) throw std::runtime_error("usage: run MODEL.pte");
  const Program program = open(argv[1]);
  Method method = load(program, "forward");

  pteron_spec spec;
  PTERON_INIT(&spec);
  check(pteron_program_spec(program.get(), "forward", PTERON_INPUTS, 0, &spec));
  std::vector<int64_t> shape(spec.shape, spec.shape + spec.ndim);
  size_t count = 1;
  for (const int64_t n : shape) count *= static_cast<size_t>(n);
  for (const float y : run(method, std::vector<float>(count, 1.0f), shape)) std::printf("%g ", static_cast<double>(y));
  std::printf("\n");

  // What does not fit is an exception, and the method can be called again.
  try {
    run(method, {1.0f}, {1});
  } catch (const Error &error) {
    std::printf("%s: %s\n", pteron_error_name(error.code), error.what());
  }
  Method moved = std::move(method);
  std::printf("%zu values again\n", run(moved, std::vector<float>(count, 1.0f), shape).size());
  return 0;
} catch (const std::exception &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
