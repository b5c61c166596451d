#include "gpu_backend/launch/slurm.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

TEST(Slurm, FirstHost) {
  EXPECT_EQ(first_slurm_host("node7"), "node7");
  EXPECT_EQ(first_slurm_host("node7,node1"), "node7");
  EXPECT_EQ(first_slurm_host("gpu[007-009,12],login1"), "gpu007");
  EXPECT_EQ(first_slurm_host("gpu[3,5-7]"), "gpu3");
  EXPECT_EQ(first_slurm_host("rack[1-2]-node[04-05]-ib,x"), "rack1-node04-ib");
}

TEST(Slurm, NoHosts) {
  for (const char* hosts : {"", ",a", "gpu[1-2", "gpu[]", "gpu[-2]", "gpu]1"})
    EXPECT_EQ(first_slurm_host(hosts), std::nullopt) << hosts;
}

TEST(Slurm, TasksByNode) {
  EXPECT_EQ(slurm_tasks_on("8", 0), 8);
  EXPECT_EQ(slurm_tasks_on("4(x2),3", 1), 4);
  EXPECT_EQ(slurm_tasks_on("4(x2),3", 2), 3);
}

TEST(Slurm, NoTasks) {
  EXPECT_EQ(slurm_tasks_on("4(x2),3", 3), std::nullopt);
  for (const char* tasks : {"", "x", "0", "4(x)", "4(x2", "4(x0)", "-1", "4(x99999999999)"})
    EXPECT_EQ(slurm_tasks_on(tasks, 0), std::nullopt) << tasks;
}

}  // namespace
}  // namespace mfsdp
