#include "gpu_backend/convert/tool/convert_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/cli/common_options.hpp"
#include "core/cli/words.hpp"

namespace mfsdp {
namespace {

/// "2GiB", "512MiB": a whole number of a binary unit.
Result<std::int64_t> parse_memory(const std::string& text, const std::string& flag) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, number);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  const int shift = unit == "GiB" ? 30 : unit == "MiB" ? 20 : 0;
  if (code != std::errc() || shift == 0 || number <= 0 || number > (1 << 20))
    return fail(flag, in_quotes(text) + " is not a size such as 2GiB or 512MiB");
  return number << shift;
}

Result<std::optional<DType>> parse_floating(const std::string& text, const std::string& flag) {
  MFSDP_LET(dtype, parse_choice<DType>(text, flag));
  if (dtype == DType::bf16 || dtype == DType::fp16 || dtype == DType::fp32 || dtype == DType::fp64)
    return std::optional(dtype);
  return fail(flag, in_quotes(text) + " is not one of bf16, fp16, fp32, fp64");
}

HelpText convert_help() {
  return {
      .tool = "mfsdp-convert",
      .purpose =
          "Reads checkpoints of other frameworks, checks them, and writes them in another format.",
      .examples = {{"mfsdp-convert --inspect outputs/checkpoint/step-1000", "what is in it?"},
                   {"mfsdp-convert --check DIR --config config.json", "is it complete and sound?"},
                   {"mfsdp-convert --diff A B", "which tensors differ, and by how much?"},
                   {"mfsdp-convert model dcp --to dcp --ranks 8", "Hugging Face to DCP"},
                   {"mfsdp-convert step-1000 model --to hf --config config.json --dtype bf16",
                    "torchtitan to Hugging Face"}},
      .negative = "--check found something, or --diff a difference",
      .description =
          "IN is found by content: a Hugging Face model, safetensors, a distributed "
          "checkpoint of PyTorch, Megatron-FSDP or Megatron-Core, an archive of "
          "torch.save, or a save of mfsdp-exec. Pickles are read as records: nothing in "
          "them is called."};
}

Result<void> check_words(const ConvertOptions& o) {
  const int actions = static_cast<int>(o.inspect) + static_cast<int>(o.check) +
                      static_cast<int>(o.diff) + static_cast<int>(o.to.has_value());
  if (actions != 1) return fail("--to", "give one of --inspect, --check, --diff and --to");
  const bool takes_two = o.diff || o.to.has_value();
  const std::string expected = o.diff ? "A and B" : takes_two ? "IN and OUT" : "IN";
  if (o.words.size() != (takes_two ? 2U : 1U))
    return fail("", fmt::format("expected {}, got {} paths", expected, o.words.size()));
  if (!o.to && (o.dtype || o.names || o.dry_run))
    return fail("--to", "is missing: --dtype, --names and --dry-run are for conversions");
  return {};
}

}  // namespace

std::vector<FlagGroup> convert_flags(ConvertOptions& o) {
  Flag dtype = bound_flag("--dtype", "D", "dtype of weights: bf16, fp16, fp32, fp64 (as they are)",
                          o.dtype, parse_floating);
  dtype.values.names = {"bf16", "fp16", "fp32", "fp64"};
  return {
      {.title = "Actions",
       .flags =
           {switch_flag("--inspect", "print tensors, shapes, dtypes and boxes of IN", o.inspect),
            switch_flag("--check", "complete, each element once, no NaN, steps equal?", o.check),
            switch_flag("--diff", "compare A and B: names, shapes, bits", o.diff),
            choice_flag("--to", "FORMAT", "write OUT: hf, dcp, fsdp_dtensor, torch_dist", o.to)}},
      {.title = "Settings",
       .flags = {
           path_flag("--config", "config.json of the model; IN's own if it has one", o.config),
           choice_flag("--names", "STYLE", "names of OUT: hf, torchtitan, megatron_fsdp, megatron",
                       o.names),
           dtype,
           choice_flag("--optimizer", "FATE", "keep or drop states of the optimizer (keep)",
                       o.optimizer),
           integer_flag("--ranks", "ranks among which DCP's rows are divided (1)", o.ranks,
                        {.lowest = 1, .highest = 65'536}),
           bound_flag("--memory", "SIZE", "bytes of elements at a time, at most (2GiB)", o.memory,
                      parse_memory),
           switch_flag("--dry-run", "plan the conversion, write nothing", o.dry_run),
           switch_flag("--structure-only", "--check without reading elements", o.skip_elements),
           choice_flag("--output", "F", "text, json (text)", o.output),
           switch_flag("--help", "show this text", o.help), help_format_flag(o.help_format),
           switch_flag("--version", "show version and build", o.version)}}};
}

Result<ConvertOptions> parse_convert_options(const std::vector<std::string>& args) {
  ConvertOptions options;
  const std::vector<FlagGroup> groups = convert_flags(options);
  WordsAndFlags parts = split_words(groups, args);
  options.words = std::move(parts.words);
  MFSDP_LET(given, parse_flags(groups, parts.flags));
  options.notes = notes_on(groups, given);
  if (options.help || options.help_format || options.version) return options;
  MFSDP_TRY(check_words(options));
  return options;
}

Manual convert_manual() {
  Manual manual = manual_of(convert_help(), convert_flags);
  manual.words = "IN [OUT]";
  manual.word_values = {.paths = PathKind::folder};
  return manual;
}

}  // namespace mfsdp
