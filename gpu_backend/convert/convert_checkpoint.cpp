#include "gpu_backend/convert/convert_checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "core/formats/object_pickle.hpp"
#include "core/formats/safetensors.hpp"
#include "core/formats/torch_archive.hpp"
#include "gpu_backend/convert/tensor_names.hpp"
#include "gpu_backend/convert/writers.hpp"
#include "gpu_backend/weights/temporary_folder.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPaddedRows = 128;  ///< of Megatron's vocabulary

bool is_megatron_format(CheckpointFormat to) {
  return to == CheckpointFormat::torch_dist || to == CheckpointFormat::fsdp_dtensor;
}

bool is_of_optimizer(std::string_view name) {
  return name.starts_with("optim") || name.starts_with("lr_scheduler") ||
         name.starts_with("opt_param_scheduler");
}

std::optional<NameStyle> style_asked(const ConvertSettings& settings) {
  if (settings.names) return settings.names;
  if (settings.to == CheckpointFormat::torch_dist) return NameStyle::megatron;
  if (settings.to == CheckpointFormat::fsdp_dtensor) return NameStyle::megatron_fsdp;
  return std::nullopt;
}

/// An archive of torch.save without tensors.
std::string archive_of(ObjectPickle pickle) {
  const std::string text = pickle.finish();
  const ZipFrame frame =
      frame_stored_zip(std::array<ZipContent, 2>{{{.name = "archive/data.pkl", .content = text},
                                                  {.name = "archive/version", .content = "3\n"}}});
  return frame.before + frame.after;
}

std::string archive_of_number(std::int64_t number) {
  ObjectPickle pickle(2);
  pickle.integer(number);
  return archive_of(std::move(pickle));
}

class Conversion {
 public:
  Conversion(const Checkpoint& checkpoint, const ConvertSettings& settings)
      : checkpoint_(checkpoint), settings_(settings), named_(name_tensors(checkpoint)) {}

  Result<void> plan() {
    MFSDP_TRY(check_source());
    std::vector<MappedTensor> mapped;
    const auto style = style_asked(settings_);
    if (style) {
      MFSDP_SET(mapped, styled(*style));
    } else if (settings_.to == CheckpointFormat::hf) {
      MFSDP_SET(mapped, named_for_hf());
    } else {
      keep_all();
    }
    for (MappedTensor& tensor : mapped) add(std::move(tensor));
    if (style && settings_.keeps_optimizer && settings_.to != CheckpointFormat::hf) add_steps();
    if (settings_.to == CheckpointFormat::fsdp_dtensor)
      for (const char* name : {"iteration", "checkpoint_version"})
        objects_.push_back({.name = name,
                            .archive = archive_of_number(std::string_view(name) == "iteration"
                                                             ? checkpoint_.step.value_or(0)
                                                             : 3)});
    std::ranges::sort(tensors_, {}, &OutputTensor::name);
    if (tensors_.empty()) return fail(checkpoint_.path.string(), "has no tensors to convert");
    return {};
  }

  Result<ConvertOutcome> write(const fs::path& out, const ReadProgress& progress) {
    ConvertOutcome outcome{.tensors = std::ssize(tensors_),
                           .dropped = {dropped_.begin(), dropped_.end()}};
    for (const OutputTensor& tensor : tensors_) outcome.bytes += tensor.bytes();
    if (settings_.is_dry) return outcome;
    std::error_code error;
    if (fs::exists(out, error) && !(fs::is_directory(out, error) && fs::is_empty(out, error)))
      return fail(out.string(), "exists; expected a new or an empty folder");
    MFSDP_LET(temporary, TemporaryFolder::beside(out, out));
    MFSDP_SET(outcome.files, write_files(temporary.path(), out, progress));
    MFSDP_TRY(sync_folder(temporary.path()));
    fs::rename(temporary.path(), out, error);
    if (error) return fail(out.string(), "cannot be made: " + error.message(), Fault::environment);
    temporary.keep();
    MFSDP_TRY(sync_folder(fs::absolute(out).parent_path()));
    return outcome;
  }

 private:
  Result<void> check_source() const {
    MFSDP_LET(findings, check_checkpoint(checkpoint_, std::nullopt, false));
    for (const CheckpointFinding& finding : findings)
      if (finding.flaw == CheckpointFlaw::file || finding.flaw == CheckpointFlaw::hole ||
          finding.flaw == CheckpointFlaw::overlap)
        return fail(finding.place, finding.what);
    return {};
  }

  Result<std::vector<MappedTensor>> styled(NameStyle style) {
    if (!settings_.model)
      return fail("--config", fmt::format("is missing: names of {} need the model's config.json",
                                          to_string(style)));
    MFSDP_LET(hf, to_hf_names(named_, *settings_.model));
    MFSDP_LET(wanted, to_style(wanted_of(std::move(hf)), *settings_.model, style));
    for (const NamedTensor& named : named_)
      if (named.is_other) dropped_.insert("other tensors, such as " + named.tensor->name);
    if (!checkpoint_.objects.empty())
      dropped_.insert("values, such as " + checkpoint_.objects.front().name);
    return std::move(wanted);
  }

  /// Without a model: the tensors must have Hugging Face's names already.
  Result<std::vector<MappedTensor>> named_for_hf() {
    if (settings_.model) return styled(NameStyle::hf);
    std::vector<NamedTensor> of_parameters;
    for (const NamedTensor& named : named_) {
      for (const std::string_view foreign : {"layers.", "decoder.", "tok_embeddings", "embedding."})
        if (named.is_weight() && named.parameter.starts_with(foreign))
          return fail("--config", fmt::format("is missing: {} is no name of Hugging Face, and "
                                              "translating it needs the model's config.json",
                                              shown_name(named.parameter)));
      if (named.is_other)
        dropped_.insert("other tensors, such as " + named.tensor->name);
      else
        of_parameters.push_back(named);
    }
    if (!checkpoint_.objects.empty())
      dropped_.insert("values, such as " + checkpoint_.objects.front().name);
    return wanted_of(unchanged_tensors(of_parameters));
  }

  /// Without moments where they are not wanted.
  std::vector<MappedTensor> wanted_of(std::vector<MappedTensor> all) {
    const bool keeps = settings_.keeps_optimizer && settings_.to != CheckpointFormat::hf;
    std::vector<MappedTensor> wanted;
    for (MappedTensor& tensor : all)
      if (tensor.state.empty() || (keeps && tensor.state.starts_with("exp_avg")))
        wanted.push_back(std::move(tensor));
      else
        dropped_.insert("states of the optimizer, such as " + tensor.state);
    return wanted;
  }

  /// For dcp: every tensor and value under its own name.
  void keep_all() {
    const std::vector<MappedTensor> all = unchanged_tensors(named_);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const NamedTensor& named = named_[i];
      const bool drops = !settings_.keeps_optimizer &&
                         (!named.state.empty() || is_of_optimizer(named.tensor->name));
      if (drops) {
        dropped_.insert("states of the optimizer, such as " + named.tensor->name);
        continue;
      }
      OutputTensor output{.name = named.tensor->name, .elements = all[i]};
      if (named.is_weight()) cast(output.elements);
      tensors_.push_back(std::move(output));
    }
    for (const CheckpointObject& object : checkpoint_.objects)
      if (settings_.keeps_optimizer || !is_of_optimizer(object.name))
        objects_.push_back({.name = object.name, .source = &object});
  }

  void cast(MappedTensor& tensor) const {
    if (settings_.dtype && tensor.type->ours) tensor.type = &element_type(*settings_.dtype);
  }

  [[nodiscard]] std::string final_name(const std::string& name, const std::string& state) const {
    if (settings_.to == CheckpointFormat::fsdp_dtensor)
      return state.empty() ? "model.module." + name
                           : fmt::format("optimizer.state.module.module.module.{}.{}", name, state);
    if (state.empty()) return name;
    if (settings_.to == CheckpointFormat::torch_dist)
      return fmt::format("optimizer.state.{}.{}", state, name);
    return fmt::format("optimizer.state.{}.{}", name, state);
  }

  void add(MappedTensor tensor) {
    if (tensor.state.empty()) cast(tensor);
    if (is_megatron_format(settings_.to) &&
        (tensor.name == "embedding.word_embeddings.weight" || tensor.name == "output_layer.weight"))
      tensor.shape.front() = round_up(tensor.shape.front(), kPaddedRows);
    std::string name = final_name(tensor.name, tensor.state);
    if (tensor.state == "exp_avg") parameters_.push_back(tensor.name);
    tensors_.push_back({.name = std::move(name), .elements = std::move(tensor)});
  }

  /// The optimizer's steps, one for each parameter with moments. Megatron-Core has one for all, in
  /// its common state.
  void add_steps() {
    if (!checkpoint_.step || settings_.to == CheckpointFormat::torch_dist) return;
    for (const std::string& parameter : parameters_)
      tensors_.push_back(
          {.name = final_name(parameter, "step"),
           .elements = {.name = {}, .type = &element_type(DType::fp32), .shape = {}, .copies = {}},
           .constant = static_cast<float>(*checkpoint_.step)});
  }

  Result<std::int64_t> write_files(const fs::path& folder, const fs::path& out,
                                   const ReadProgress& progress) {
    constexpr std::int64_t kMostPiece = 64 << 20;
    // A piece is held twice where it is rounded, the second time in a wider dtype.
    ElementStream stream(checkpoint_, std::clamp<std::int64_t>(settings_.memory / 4, 1, kMostPiece),
                         progress);
    const OutputFolder whole{.path = folder, .shown = out};
    if (settings_.to == CheckpointFormat::hf) {
      if (!settings_.config_text.empty())
        MFSDP_TRY(write_whole(whole, "config.json", settings_.config_text));
      return write_hf(whole, tensors_, settings_.shard_bytes, stream);
    }
    if (settings_.to == CheckpointFormat::dcp)
      return write_dcp(whole, tensors_, objects_, settings_.ranks, stream);
    return write_megatron(folder, out, stream);
  }

  /// A folder for the iteration, and the tracker that names it.
  Result<std::int64_t> write_megatron(const fs::path& folder, const fs::path& out,
                                      ElementStream& stream) {
    const std::int64_t step = checkpoint_.step.value_or(0);
    const std::string iteration = fmt::format("iter_{:07}", step);
    std::error_code error;
    fs::create_directory(folder / iteration, error);
    if (error) return fail(out.string(), "cannot be made: " + error.message(), Fault::environment);
    const OutputFolder inner{.path = folder / iteration, .shown = out / iteration};
    MFSDP_LET(files, write_dcp(inner, tensors_, objects_, settings_.ranks, stream));
    if (settings_.to == CheckpointFormat::torch_dist) {
      MFSDP_TRY(write_whole(inner, "common.pt", common_state(step)));
      MFSDP_TRY(write_whole(
          inner, "metadata.json",
          R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1})"));
      files += 2;
    }
    MFSDP_TRY(sync_folder(inner.path));
    MFSDP_TRY(write_whole({.path = folder, .shown = out}, "latest_checkpointed_iteration.txt",
                          fmt::format("{}", step)));
    return files + 1;
  }

  [[nodiscard]] static std::string common_state(std::int64_t step) {
    ObjectPickle pickle(2);
    pickle.dict();
    pickle.mark();
    pickle.text("iteration");
    pickle.integer(step);
    pickle.text("checkpoint_version");
    pickle.integer(3);
    pickle.set_items();
    return archive_of(std::move(pickle));
  }

  const Checkpoint& checkpoint_;
  const ConvertSettings& settings_;
  std::vector<NamedTensor> named_;
  std::vector<OutputTensor> tensors_;
  std::vector<OutputObject> objects_;
  std::vector<std::string> parameters_;  ///< with moments
  std::set<std::string> dropped_;
};

}  // namespace

Result<ConvertOutcome> convert_checkpoint(const Checkpoint& checkpoint, const fs::path& out,
                                          const ConvertSettings& settings,
                                          const ReadProgress& progress) {
  if (settings.to == CheckpointFormat::mfsdp || settings.to == CheckpointFormat::torch)
    return fail("--to", fmt::format("{} is read, not written; mfsdp-exec --init-from reads hf",
                                    to_string(settings.to)));
  Conversion conversion(checkpoint, settings);
  MFSDP_TRY(conversion.plan());
  return conversion.write(out, progress);
}

}  // namespace mfsdp
