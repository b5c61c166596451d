// A session and an asker for tests of what mfsdp-sim does, with a small model of their own.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "sim/tool/asker.hpp"
#include "sim/tool/sim_options.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp::test {

class Asking {
 public:
  /// Four blocks, 4,096 positions; as small as llama_nano otherwise.
  [[nodiscard]] std::string small_model(bool tied_embeddings) const {
    const std::string path = folder_ / (tied_embeddings ? "tied.json" : "untied.json");
    std::ofstream(path) << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 192, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 4, "vocab_size": 264,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
      "tie_word_embeddings": )"
                        << (tied_embeddings ? "true" : "false") << "}";
    return path;
  }

  [[nodiscard]] static SimOptions options(const std::vector<std::string>& arguments) {
    auto options = parse_sim_options(arguments);
    if (!options) ADD_FAILURE() << options.error().message();
    return options.value_or(SimOptions{});
  }

  Asker& asker() { return asker_; }

 private:
  ScratchFolder folder_;
  std::ostringstream out_;
  std::ostringstream err_;
  std::atomic<bool> interrupted_ = false;
  Asker asker_{{.tool = "mfsdp-sim",
                .scenarios = kScenarios,
                .out = out_,
                .err = err_,
                .interrupted = interrupted_}};
};

}  // namespace mfsdp::test
