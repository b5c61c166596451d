#include "core/formats/element_type.hpp"

#include <algorithm>
#include <array>

namespace mfsdp {
namespace {

/// All types of safetensors, in its order of kinds.
constexpr std::array kElementTypes{
    ElementType{"F32", "float32", "FloatStorage", 32, DType::fp32},
    ElementType{"BF16", "bfloat16", "BFloat16Storage", 16, DType::bf16},
    ElementType{"F16", "float16", "HalfStorage", 16, DType::fp16},
    ElementType{"F64", "float64", "DoubleStorage", 64, DType::fp64},
    ElementType{"BOOL", "bool", "BoolStorage", 8},
    ElementType{"U8", "uint8", "ByteStorage", 8},
    ElementType{"I8", "int8", "CharStorage", 8},
    ElementType{"U16", "uint16", "", 16},
    ElementType{"I16", "int16", "ShortStorage", 16},
    ElementType{"U32", "uint32", "", 32},
    ElementType{"I32", "int32", "IntStorage", 32},
    ElementType{"U64", "uint64", "", 64},
    ElementType{"I64", "int64", "LongStorage", 64},
    ElementType{"C64", "complex64", "ComplexFloatStorage", 64},
    ElementType{"F8_E5M2", "float8_e5m2", "", 8},
    ElementType{"F8_E4M3", "float8_e4m3fn", "", 8},
    ElementType{"F8_E8M0", "float8_e8m0fnu", "", 8},
    ElementType{"F6_E2M3", "", "", 6},
    ElementType{"F6_E3M2", "", "", 6},
    ElementType{"F4", "", "", 4},
};

const ElementType* find_type(std::string_view name, std::string_view ElementType::* field) {
  const auto* found = std::ranges::find(kElementTypes, name, field);
  return name.empty() || found == kElementTypes.end() ? nullptr : found;
}

}  // namespace

const ElementType* type_of_safetensors(std::string_view name) {
  return find_type(name, &ElementType::safetensors);
}

const ElementType* type_of_torch(std::string_view name) {
  return find_type(name, &ElementType::torch);
}

const ElementType* type_of_storage(std::string_view name) {
  return find_type(name, &ElementType::storage);
}

const ElementType& element_type(DType floating) {
  return *std::ranges::find(kElementTypes, std::optional(floating), &ElementType::ours);
}

}  // namespace mfsdp
