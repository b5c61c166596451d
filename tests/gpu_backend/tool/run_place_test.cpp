// Where a run goes in a build with CUDA and in one without. CUDA_VISIBLE_DEVICES hides the GPUs
// that this machine may have.
#include "gpu_backend/tool/run_place.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mfsdp {
namespace {

const Environment kNoGpus{{"CUDA_VISIBLE_DEVICES", ""}};

ExecOptions asking_for(BackendChoice backend) {
  ExecOptions options;
  options.backend = backend;
  return options;
}

TEST(RunPlace, TheCpuIsThereInEveryBuild) {
  for (const BackendChoice backend : {BackendChoice::cpu, BackendChoice::automatic})
    for (const bool has_cuda : {false, true}) {
      const auto place = find_run_place(asking_for(backend), kNoGpus, has_cuda);
      ASSERT_TRUE(place) << place.error().message();
      EXPECT_FALSE(place->launch);
    }
}

TEST(RunPlace, CudaNeedsABuildAndAGpu) {
  const auto message = [](bool has_cuda) {
    const auto place = find_run_place(asking_for(BackendChoice::cuda), kNoGpus, has_cuda);
    if (place) return std::string("a place");
    EXPECT_EQ(place.error().fault, Fault::environment);
    return place.error().message();
  };
  EXPECT_EQ(message(false), "--backend cuda: this build has no gpu_backend/cuda; use cpu");
  EXPECT_EQ(message(true), "--backend cuda: no GPU is visible on this machine; use cpu");
}

TEST(RunPlace, FlagsOfGpusMeanNothingOnTheCpu) {
  ExecOptions options = asking_for(BackendChoice::automatic);
  options.given = {"--nproc"};
  for (const bool has_cuda : {false, true}) {
    const auto place = find_run_place(options, kNoGpus, has_cuda);
    ASSERT_FALSE(place);
    EXPECT_THAT(place.error().message(), testing::StartsWith("--nproc: is for runs on GPUs: "));
  }
}

TEST(RunPlace, TheFirstProcessOfARunIsTheOneThatWasStartedForRank0) {
  EXPECT_TRUE(RunPlace{}.is_first());  // on the CPU there is no other
  RankLaunch launch;
  launch.starts_ranks = true;
  EXPECT_TRUE(RunPlace{.launch = launch}.is_first());
  launch.supervised = Supervision{.supervisor = 1};
  EXPECT_FALSE(RunPlace{.launch = launch}.is_first());  // rank 0 itself: its supervisor is
  launch.supervised.reset();
  launch.place.rank = 8;
  EXPECT_FALSE(RunPlace{.launch = launch}.is_first());  // another host's supervisor
}

}  // namespace
}  // namespace mfsdp
