#include "sim/tool/sim_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/amount.hpp"
#include "sim/search/open_axes.hpp"
#include "sim/tool/sweep.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kMostParts = 1'000'000'000;  // finer parts are a mistake

Result<void> set_network(const std::string& text, std::optional<Rational>& target) {
  const auto number = parse_rational(text, "--network-gbps");
  if (!number || number->value() < 1e-3 || number->value() > 1e6)
    return fail("--network-gbps", in_quotes(text) + " is not a number of Gbit/s from 0.001 to 1e6");
  target = *number;
  return {};
}

Result<void> set_tokens(const std::string& text, std::optional<std::int64_t>& target) {
  target = parse_count(text);
  if (target && *target > 0) return {};
  return fail("--tokens",
              in_quotes(text) + " is not a number of tokens such as 15T, 300B, 1e12 or 1000000000");
}

Result<void> set_reserve(const std::string& text, Reserve& target) {
  const std::string expected =
      in_quotes(text) + " is not an amount of memory such as 4GiB, or a part of it such as 5%";
  if (text.ends_with('%')) {
    const auto percent = parse_rational(text.substr(0, text.size() - 1), "--memory-reserve");
    if (!percent || percent->num < 0 || percent->value() >= 100 || percent->den > kMostParts)
      return fail("--memory-reserve", expected);
    MFSDP_LET(part, make_rational(percent->num, checked_mul(percent->den, 100)));
    target = part;
    return {};
  }
  const auto bytes =
      text == "0" ? std::optional<std::int64_t>(0) : parse_amount_up(text, kByteWords);
  if (!bytes) return fail("--memory-reserve", expected);
  target = Bytes(*bytes);
  return {};
}

Result<void> set_limit(const std::string& text, std::optional<Bytes>& target) {
  const auto bytes = parse_amount_up(text, kByteWords);
  if (!bytes || *bytes < 1)
    return fail("--memory-limit", in_quotes(text) + " is not an amount of memory such as 76GiB");
  target = Bytes(*bytes);
  return {};
}

/// balanced, zipf:S, or a file.
Result<void> set_routing(const std::string& text, std::optional<RoutingFlag>& target) {
  constexpr double kSteepest = 10;
  RoutingFlag routing{.text = text, .zipf = {}, .is_file = false};
  if (text.starts_with("zipf:") || text == "zipf") {
    const auto exponent =
        parse_rational(text.substr(std::min<std::size_t>(text.size(), 5)), "--routing");
    if (!exponent || exponent->num < 0 || exponent->value() > kSteepest)
      return fail("--routing", in_quotes(text) +
                                   " is not zipf:S with S from 0 to 10, such as "
                                   "zipf:1.2");
    routing.zipf = *exponent;
  } else if (text != "balanced") {
    MFSDP_TRY(parse_path(text, "--routing"));
    routing.is_file = true;
  }
  target = routing;
  return {};
}

Result<void> set_host_launch(const std::string& text, std::optional<Nanos>& target) {
  constexpr double kMost = 1e4;
  const auto number = parse_rational(text, "--host-launch-us");
  if (!number || number->value() < 0 || number->value() > kMost || number->den > kMostParts)
    return fail("--host-launch-us",
                in_quotes(text) + " is not a number of microseconds from 0 to 10000, such as 4.5");
  constexpr std::int64_t kNanosPerMicro = 1000;
  target = Nanos((kNanosPerMicro * number->num + number->den / 2) / number->den);
  return {};
}

Result<void> set_jitter(const std::string& text, Rational& target) {
  const bool percent = text.ends_with('%');
  const auto number = parse_rational(percent ? text.substr(0, text.size() - 1) : text, "--jitter");
  if (!number || number->num < 0 || number->value() > (percent ? 30 : 0.3) ||
      number->den > kMostParts)
    return fail("--jitter", in_quotes(text) +
                                " is not a deviation of kernel times from 0 to 30%, "
                                "such as 2% or 0.02");
  MFSDP_LET(part, make_rational(number->num, checked_mul(number->den, percent ? 100 : 1)));
  target = part;
  return {};
}

/// RANK:FACTOR
Result<void> add_slow_rank(const std::string& text, std::vector<SlowRankFlag>& target) {
  const std::string expected =
      in_quotes(text) +
      " is not RANK:FACTOR, such as 17:1.05 for kernels that take 1.05 times as "
      "long (1 to 100)";
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return fail("--slow-rank", expected);
  const auto rank = parse_integer(text.substr(0, colon), "--slow-rank", kRankRange);
  const auto factor = parse_rational(text.substr(colon + 1), "--slow-rank");
  if (!rank || !factor || factor->value() < 1 || factor->value() > 100)
    return fail("--slow-rank", expected);
  for (const SlowRankFlag& other : target)
    if (other.rank == *rank)
      return fail("--slow-rank", fmt::format("rank {} is given twice", *rank));
  target.push_back({.rank = *rank, .factor = *factor});
  return {};
}

/// "2.5" for every kind of GPU, or "h100=2.5,h200=3.8".
Result<void> set_prices(const std::string& text, std::vector<GpuPrice>& target) {
  const std::string expected = in_quotes(text) +
                               " is not the price of a GPU for an hour such as 2.5, nor a list by "
                               "GPU such as h100=2.5,h200=3.8";
  const std::vector<std::string> parts = split(text, ',');
  for (const std::string& part : parts) {
    const std::size_t sign = part.find('=');
    const bool named = sign != std::string::npos;
    const auto price = parse_rational(named ? part.substr(sign + 1) : part, "--price");
    const bool lonely = !named && parts.size() > 1;
    if (!price || price->num < 0 || lonely || sign == 0) return fail("--price", expected);
    const std::string gpu = named ? part.substr(0, sign) : "";
    for (const GpuPrice& other : target)
      if (other.gpu == gpu) return fail("--price", in_quotes(gpu) + " has two prices");
    target.push_back({.gpu = gpu, .price = *price});
  }
  return {};
}

/// A number above 0.
Result<double> positive(const std::string& text, const char* flag) {
  const auto number = parse_rational(text, flag);
  if (!number || number->num <= 0 || number->value() > 1e9)
    return fail(flag, in_quotes(text) + " is not a number above 0 and up to 1e9");
  return number->value();
}

FlagGroup machine_group(SimOptions& o) {
  const auto network = [&o](const std::string& text) { return set_network(text, o.network_gbps); };
  const auto jitter = [&o](const std::string& text) { return set_jitter(text, o.jitter); };
  const auto slow = [&o](const std::string& text) { return add_slow_rank(text, o.slow_ranks); };
  const auto reserve = [&o](const std::string& text) { return set_reserve(text, o.reserve); };
  const auto launch = [&o](const std::string& text) {
    return set_host_launch(text, o.host_launch);
  };
  const auto routing = [&o](const std::string& text) { return set_routing(text, o.routing); };
  return {
      .title = "Machine in detail",
      .flags = {
          {.name = "--network-gbps",
           .value = "X",
           .help = "Gbit/s of one node's network, all NICs, per direction",
           .apply = network},
          integer_flag("--power-limit", "watts that each GPU may draw (default: its own limit)",
                       o.power_limit, {.lowest = 1, .highest = 100'000}),
          choice_flag("--tables", "T",
                      "timings of GEMMs and attention: own, published (default: by GPU)", o.tables),
          choice_flag("--attention", "K",
                      "mfsdp-exec's bf16 attention: warpgroups or cudnn (warpgroups)", o.attention),
          {.name = "--memory-reserve",
           .value = "X",
           .help = "memory to keep free: 4GiB, or 5% of the GPU's (0)",
           .apply = reserve},
          {.name = "--host-launch-us",
           .value = "X",
           .help = "microseconds of the host to launch a kernel, for another --engine (4)",
           .apply = launch},
          {.name = "--routing",
           .value = "R|FILE",
           .help = "tokens of experts: balanced, zipf:S, or a file of counts (balanced)",
           .apply = routing,
           .values = {.names = {"balanced"}, .paths = PathKind::file}},
          {.name = "--jitter",
           .value = "X",
           .help = "standard deviation of kernel times on every rank: 2% or 0.02 (0)",
           .apply = jitter},
          {.name = "--slow-rank",
           .value = "R:X",
           .help = "kernels of rank R take X times as long",
           .apply = slow,
           .repeatable = true},
          integer_flag("--seed", "of the jitter (1)", o.seed, kSeeds),
          switch_flag("--by-rank", "simulate every rank, even identical ones", o.by_rank)}};
}

FlagGroup question_group(SimOptions& o) {
  const auto tokens = [&o](const std::string& text) { return set_tokens(text, o.tokens); };
  const auto prices = [&o](const std::string& text) { return set_prices(text, o.prices); };
  const auto number_of = [](const char* flag, auto& target) {
    return [flag, &target](const std::string& text) -> Result<void> {
      MFSDP_SET(target, positive(text, flag));
      return {};
    };
  };
  const auto mtbf = number_of("--mtbf", o.failures.mtbf_hours);
  const auto interval = number_of("--save-interval", o.failures.save_interval);
  const auto save = number_of("--save-time", o.failures.save_time);
  const auto restart = number_of("--restart-time", o.failures.restart_time);
  const auto axes = [&o](const std::string& text) -> Result<void> {
    o.axes = split(text, ',');
    return check_axis_names(o.axes);
  };
  return {
      .title = "Questions",
      .flags = {
          choice_flag("--find", "WHAT",
                      "max-micro-batch, max-seq-len, min-gpus, fastest, cheapest, pareto", o.find),
          {.name = "--axes",
           .value = "A,...",
           .help = "with --find: choose tp, cp, pp, vpp, ep, schedule, fp8, ..., or all",
           .apply = axes},
          path_flag("--tune-out", "write what --find fastest or cheapest found, for --options",
                    o.tune_out),
          {.name = "--tokens",
           .value = "N",
           .help = "tokens to train on (15T): days and GPU-hours",
           .apply = tokens},
          {.name = "--price",
           .value = "X",
           .help = "of one GPU for one hour, or h100=X,h200=Y: the cost of --tokens",
           .apply = prices},
          {.name = "--mtbf",
           .value = "H",
           .help = "hours between failures of one GPU: days and cost count them",
           .apply = mtbf},
          {.name = "--save-time",
           .value = "S",
           .help = "with --mtbf: seconds that a save stops training (30)",
           .apply = save},
          {.name = "--save-interval",
           .value = "S",
           .help = "with --mtbf: seconds between saves (default: the best, by Daly)",
           .apply = interval},
          {.name = "--restart-time",
           .value = "S",
           .help = "with --mtbf: seconds from a failure to training again (600)",
           .apply = restart},
          switch_flag("--require-fit", "exit status 1 if it does not fit, or within error alone",
                      o.require_fit),
          switch_flag("--allow-within-error", "--require-fit passes what fits within error, too",
                      o.allow_within_error),
          choice_flag("--explain", "WHAT",
                      "memory, layout, critical-path or network: a longer answer after the text",
                      o.explain),
          path_flag("--budget", "exit status 1 if a limit of this TOML file is exceeded", o.budget),
          switch_flag("--allow-incomparable",
                      "no failure if the budget is of another model, cluster or cost model",
                      o.allow_incomparable),
          path_flag("--budget-out", "write the run's values as a budget", o.budget_out),
          switch_flag("--list-models", "built-in models", o.list_models),
          switch_flag("--list-gpus", "GPUs of the catalogue", o.list_gpus),
          switch_flag("--list-clusters", "clusters of the catalogue", o.list_clusters)}};
}

FlagGroup trust_group(SimOptions& o) {
  const auto calibrate = [&o](const std::string& text) -> Result<void> {
    MFSDP_LET(path, parse_path(text, "--calibrate"));
    o.calibrate.push_back(path);
    return {};
  };
  return {
      .title = "Trust",
      .flags = {
          switch_flag("--fidelity", "all measurements there are, against the model", o.fidelity),
          switch_flag("--published", "runs that others published, beside their predictions",
                      o.published),
          path_flag("--anchor", "a measured run (result JSON) to scale predictions by", o.anchor),
          {.name = "--calibrate",
           .value = "FILE...",
           .help = "fit measurements: nccl-tests output, tables as CSV, PyTorch's traces",
           .apply = calibrate,
           .repeatable = true,
           .takes_several = true,
           .values = {.paths = PathKind::file}},
          path_flag("--calibrate-out", "the GPU or cluster file that --calibrate writes",
                    o.calibrate_out)}};
}

FlagGroup replay_group(SimOptions& o) {
  const auto limit = [&o](const std::string& text) { return set_limit(text, o.memory_limit); };
  const auto conf = [&o](const std::string& text) -> Result<void> {
    o.alloc_conf = text;
    return {};
  };
  const auto option = [&o](const std::string& text) { return o.engine_options.set(text); };
  return {
      .title = "Other engines",
      .flags = {
          choice_flag("--engine", "E",
                      "predict this engine: fsdp2, fsdp2-compile, megatron-fsdp-v2, ... (mfsdp)",
                      o.engine),
          {.name = "--engine-option",
           .value = "NAME=X",
           .help = "of another --engine, by its framework's word: overlap_comm=true",
           .apply = option,
           .repeatable = true},
          switch_flag("--compare-engines", "the same job under every engine", o.compare_engines),
          path_flag("--replay", "a memory snapshot of PyTorch through its allocator's rules",
                    o.replay),
          {.name = "--alloc-conf",
           .value = "SETTINGS",
           .help = "PYTORCH_CUDA_ALLOC_CONF for another --engine than mfsdp, or for --replay",
           .apply = conf},
          {.name = "--memory-limit",
           .value = "X",
           .help = "memory that the allocator may reserve: 76GiB (default: all of the GPU's)",
           .apply = limit},
          path_flag("--memory-snapshot",
                    "write the allocations of another --engine as a PyTorch memory snapshot",
                    o.memory_snapshot)}};
}

FlagGroup fsdp2_group(SimOptions& o) {
  FlagGroup group{.title = "With --engine fsdp2", .flags = {}};
  for (const EngineOption& option : kEngineOptions) {
    if (!option.is_flag()) continue;
    const auto set = [&o, word = option.word](const std::string& text) {
      return o.engine_options.set(word, text);
    };
    group.flags.push_back(
        {.name = std::string(option.word),
         .value = std::string(option.value),
         .help = std::string(option.help),
         .apply = set,
         .values = {.names = option.examples.empty() ? std::vector<std::string>{}
                                                     : split(option.examples, ' ')}});
  }
  return group;
}

/// The flags given that ask for something other than a prediction, by name.
std::vector<std::string> other_questions(const SimOptions& o) {
  std::vector<std::string> asked;
  const std::array<std::pair<bool, const char*>, 7> questions{
      {{o.list_models, "--list-models"},
       {o.list_gpus, "--list-gpus"},
       {o.list_clusters, "--list-clusters"},
       {o.fidelity, "--fidelity"},
       {o.published, "--published"},
       {!o.calibrate.empty(), "--calibrate"},
       {o.replay.has_value(), "--replay"}}};
  for (const auto& [is_asked, name] : questions)
    if (is_asked) asked.emplace_back(name);
  return asked;
}

Result<void> check_questions(const SimOptions& options) {
  const CommonOptions& common = options.common;
  const std::vector<std::string> others = other_questions(options);
  const std::string format(to_string(common.output));
  if (others.size() > 1)
    return fail(others[0], "contradicts " + others[1] + "; ask for one of them at a time");
  const bool lists = options.list_models || options.list_gpus || options.list_clusters;
  if (lists && common.output != OutputFormat::text && common.output != OutputFormat::md)
    return fail(others[0], "contradicts --output " + format + "; lists are text or md");
  if (options.explain && common.output != OutputFormat::text)
    return fail("--explain", "contradicts --output " + format + "; explanations are text");
  if (others.empty() && common.model.empty() && !common.plan)
    return fail("--model", "is missing: name a model (--list-models), a config.json or a --plan");
  return {};
}

/// The flags that a question which is no prediction takes beside its own.
Result<void> check_alone(const SimOptions& options, const std::string& question,
                         const std::vector<std::string>& taken) {
  for (const std::string& flag : options.given)
    if (flag != question && !contains(taken, flag))
      return fail(flag, "contradicts " + question + ", which does not use it");
  return {};
}

Result<void> check_pairs(const SimOptions& options) {
  if (options.fidelity) MFSDP_TRY(check_alone(options, "--fidelity", {"--output"}));
  if (options.published) MFSDP_TRY(check_alone(options, "--published", {"--output", "--tables"}));
  if (!options.calibrate.empty())
    MFSDP_TRY(check_alone(options, "--calibrate",
                          {"--output", "--calibrate-out", "--gpu", "--gpus-per-node"}));
  if (options.replay)
    MFSDP_TRY(check_alone(options, "--replay",
                          {"--output", "--alloc-conf", "--memory-limit", "--require-fit"}));
  if (options.find == Find::max_micro_batch && contains(options.given, "--micro-batch"))
    return fail("--micro-batch", "contradicts --find max-micro-batch, which looks for it");
  if (options.find == Find::max_seq_len && contains(options.given, "--seq-len"))
    return fail("--seq-len", "contradicts --find max-seq-len, which looks for it");
  if (!options.prices.empty() && !options.tokens && options.find != Find::cheapest &&
      options.find != Find::pareto)
    return fail("--price", "needs --tokens, the number of tokens to train on");
  if (options.allow_within_error && !options.require_fit)
    return fail("--allow-within-error", "needs --require-fit, which it relaxes");
  if (options.allow_incomparable && !options.budget)
    return fail("--allow-incomparable", "needs --budget, the limits to compare with");
  if (options.calibrate_out && options.calibrate.empty())
    return fail("--calibrate-out", "needs --calibrate FILE..., the measurements to fit");
  const bool is_choice = options.find && chooses(*options.find);
  if (options.tune_out && !is_choice)
    return fail("--tune-out", "needs --find fastest or --find cheapest, whose result it writes");
  if (!options.axes.empty() && !is_choice)
    return fail("--axes", "needs --find fastest, cheapest or pareto, which chooses their values");
  for (const char* flag : {"--save-time", "--save-interval", "--restart-time"})
    if (contains(options.given, flag) && !options.failures.mtbf_hours)
      return fail(flag, "needs --mtbf, the hours between failures of one GPU");
  if (options.failures.mtbf_hours && !options.tokens && !is_choice)
    return fail("--mtbf", "needs --tokens, the number of tokens to train on");
  if (options.find && options.common.plan)
    return fail("--find", "contradicts --plan: there is nothing to choose in a given plan");
  return {};
}

}  // namespace

std::vector<FlagGroup> price_flags(SimOptions& options) {
  return {machine_group(options),
          {.title = {}, .flags = {path_flag("--anchor", "", options.anchor)}}};
}

std::vector<FlagGroup> sim_flags(SimOptions& options) {
  std::vector<FlagGroup> groups = common_flags(options.common);
  groups.push_back(machine_group(options));
  groups.push_back(question_group(options));
  groups.push_back(trust_group(options));
  groups.push_back(replay_group(options));
  groups.push_back(fsdp2_group(options));
  return groups;
}

Result<void> check_sim_options(const SimOptions& options, const std::vector<FlagGroup>& groups) {
  if (options.common.asks_about_tool()) return {};
  MFSDP_TRY(check_common(options.common, groups, options.given));
  MFSDP_TRY(check_questions(options));
  return check_pairs(options);
}

Result<std::vector<std::string>> with_all_engines(std::vector<std::string> args) {
  const auto asked = std::ranges::find(args, "--compare-engines");
  if (asked == args.end()) return args;
  for (const std::string& other : args)
    if (other == "--engine" || other.starts_with("--engine="))
      return fail("--engine", "contradicts --compare-engines, which takes all of them");
  *asked = fmt::format("--engine={}", fmt::join(Names<EngineKind>::values, ","));
  return args;
}

Result<SimOptions> parse_sim_options(const std::vector<std::string>& args) {
  SimOptions options;
  const std::vector<FlagGroup> groups = sim_flags(options);
  MFSDP_LET(given, parse_flags(groups, args));
  options.given = given;
  options.common.notes = notes_on(groups, given);
  MFSDP_TRY(check_sim_options(options, groups));
  return options;
}

Result<void> check_several(const SimOptions& options, const std::string& several) {
  for (const char* flag :
       {"--explain", "--trace", "--memory-trace", "--memory-snapshot", "--plan-out", "--budget",
        "--allow-incomparable", "--budget-out", "--calibrate", "--fidelity", "--published"})
    if (contains(options.given, flag))
      return fail(flag, "is about one run and contradicts " + several);
  return {};
}

HelpText sim_help() {
  return {
      .tool = "mfsdp-sim",
      .purpose = "Predicts memory, step time and overlap of fully sharded training.",
      .examples = {{"mfsdp-sim --model llama3_8b --gpus 64", "Llama-3-8B on 64 H100"},
                   {"mfsdp-sim --model ./my-model --gpu h200", "your config.json"},
                   {"mfsdp-sim --model qwen3_32b --gpus 512 --outer-dp 64", "HSDP: 64 groups of 8"},
                   {"mfsdp-sim --model llama3_8b --micro-batch 1,2,4", "lists: a row each"},
                   {"mfsdp-sim --model llama3_70b --gpus 256 --find fastest", "the best settings"},
                   {"mfsdp-sim --model llama3_8b --require-fit --output json", "for scripts"},
                   {"mfsdp-sim --model llama3_8b --budget limits.toml", "fails if it got worse"},
                   {"mfsdp-sim --model llama3_8b --trace step.json.gz", "for ui.perfetto.dev"}},
      .negative = "no fit (--require-fit), over --budget, nothing found",
      .lists = fmt::format("{} take several values with commas between them; every combination is "
                           "predicted, and each is a row.",
                           fmt::join(swept_flags(), ", ")),
      .description =
          "The plan of one training step is built from the flags: every kernel, collective, copy, "
          "event and wait of a rank, and where each buffer lies in memory. Its memory is counted "
          "to "
          "the byte, and the plan is simulated on the machine that the flags name. No GPU, no "
          "framework and no model download is needed.\n"
          "Results are printed and stored; mfsdp-report reads the store. The same flags give the "
          "same plan in mfsdp-verify and mfsdp-exec.",
      .files = files_of_tools(true)};
}

}  // namespace mfsdp
