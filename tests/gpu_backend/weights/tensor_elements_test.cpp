#include "gpu_backend/weights/tensor_elements.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/runtime/scalar.hpp"

namespace mfsdp {
namespace {

/// Elements `begin` on of a tensor of these, at an odd address.
template <class T>
std::vector<double> read(std::vector<T> elements, std::int64_t begin) {
  std::vector<std::byte> room(1 + elements.size() * sizeof(T));
  std::memcpy(room.data() + 1, elements.data(), elements.size() * sizeof(T));
  const SafeTensor tensor{.name = "t",
                          .dtype = std::string(safetensors_name(dtype_of<T>)),
                          .shape = {std::ssize(elements)},
                          .data = std::span(room).subspan(1)};
  std::vector<double> out(elements.size() - static_cast<std::size_t>(begin));
  read_elements(tensor, begin, out);
  return out;
}

TEST(TensorElements, AreReadExactly) {
  // 1.5 = 1.1b: exponent 127, fraction 1000000b. 2^-24 is the smallest fp16.
  EXPECT_EQ(read<Bf16>({{0x3f80}, {0x3fc0}, {0xff80}}, 1),
            (std::vector<double>{1.5, -std::numeric_limits<double>::infinity()}));
  EXPECT_EQ(read<Fp16>({{0x3c00}, {0x0001}}, 0), (std::vector<double>{1, 0x1p-24}));
  EXPECT_EQ(read<float>({0.1F, 3}, 0), (std::vector<double>{double{0.1F}, 3}));
  EXPECT_EQ(read<double>({0.1, 1e-300}, 0), (std::vector<double>{0.1, 1e-300}));
}

}  // namespace
}  // namespace mfsdp
