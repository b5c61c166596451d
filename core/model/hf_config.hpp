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
  std::vector<std::string> notes;  ///< as HfModel's
};

/// What a config.json says.
struct HfModel {
  ModelShape shape;
  ModelGaps gaps;
  /// What the user should know of how the file was read, a sentence each: that its model_type was
  /// read as another, and which fields were passed over.
  std::vector<std::string> notes;
};

/// Reads the text of a config.json of one of hf_families(), told by its model_type, or where that
/// is another by the class that `architectures` names. `where` is the file's name for errors. Wrong
/// JSON names its line (NaN and Infinity, which Python writes, are numbers); a missing, wrong or
/// absurd field is named. Fields that would change memory or time in a way that no recipe knows are
/// an error that names them and their values. Fields that are not known here are passed over, with
/// a note (core/model/foreign_fields.hpp).
[[nodiscard]] Result<HfModel> read_hf_config(std::string_view text, const std::string& where);

/// The same where a gap is an error too: for whoever computes with the shape.
[[nodiscard]] Result<ModelShape> parse_hf_config(std::string_view text, const std::string& where);

/// `name_or_path`: a built-in name, a config.json, or a directory that holds one. Names are looked
/// up in `models_dir` (<models_dir>/<name>/config.json), where nothing lies at the path also as
/// Hugging Face has them: "Qwen/Qwen2.5-72B-Instruct" is qwen2.5_72b. An unknown name lists the
/// closest ones, or says what is not modelled of it.
[[nodiscard]] Result<NamedModel> load_model(const std::string& name_or_path,
                                            const std::filesystem::path& models_dir);

/// Names of the built-in models, sorted.
[[nodiscard]] Result<std::vector<std::string>> list_models(const std::filesystem::path& models_dir);

}  // namespace mfsdp
