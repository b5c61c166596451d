// Reading a Hugging Face config.json into a model shape, and the built-in models.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/model/model.hpp"
#include "core/model/model_gaps.hpp"

namespace mfsdp {

/// A model as the user named it.
struct NamedModel {
  std::string name;  ///< built-in name, or the folder or file name of a path
  ModelShape shape;
  ModelGaps gaps;
  std::vector<std::string> notes;  ///< as in HfModel
};

/// The contents of a config.json.
struct HfModel {
  ModelShape shape;
  ModelGaps gaps;
  /// Notes for the user, one sentence each: that the file was read as another model_type, and which
  /// fields were ignored.
  std::vector<std::string> notes;
};

/// Reads a config.json of one of hf_families(): that of its model_type or, where that is unknown,
/// of the class that `architectures` names. `where` is the file's name in errors. Errors name the
/// line of wrong JSON (NaN and Infinity, which Python writes, are numbers), missing and wrong
/// fields, and fields with values that no recipe models. Unknown fields are ignored, with a note
/// (core/model/foreign_fields.hpp).
[[nodiscard]] Result<HfModel> read_hf_config(std::string_view text, const std::string& where);

/// As read_hf_config(), but a gap is an error too: for callers that compute with the shape.
[[nodiscard]] Result<ModelShape> parse_hf_config(std::string_view text, const std::string& where);

/// `name_or_path`: a built-in name, a config.json, or a directory that holds one. Names are looked
/// up in `models_dir` (<models_dir>/<name>/config.json). If the path does not exist, Hugging Face's
/// spelling is accepted too: "Qwen/Qwen2.5-72B-Instruct" is qwen2.5_72b. The error for an unknown
/// name lists the closest ones, or what of it is not modelled.
[[nodiscard]] Result<NamedModel> load_model(const std::string& name_or_path,
                                            const std::filesystem::path& models_dir);

/// Names of the built-in models, sorted.
[[nodiscard]] Result<std::vector<std::string>> list_models(const std::filesystem::path& models_dir);

}  // namespace mfsdp
