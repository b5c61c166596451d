// Edits of a pipeline that change its meaning: the proof finds each, and the checker refuses each
// with both certificates that can be forged for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>

#include "core/plan/plan_json.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/pipeline.hpp"
#include "tests/support/pipeline_edits.hpp"
#include "verify/proof/job.hpp"

namespace mfsdp {
namespace {

using test::buffer;
using test::call;
using test::drop;
using test::exchange;
using test::find_op;
using test::kernel;
using test::operand;
using test::ops;
using test::segment;
using test::transfer;

constexpr std::size_t kFirst = 0;   // stage
constexpr std::size_t kSecond = 1;  // and the last
constexpr const char* kWithData = "1f1b_2x4_dp2.json";

struct JobEdit {
  const char* name;
  std::function<void(Job&)> make;
  const char* plan = "1f1b_2x4.json";

  friend std::ostream& operator<<(std::ostream& to, const JobEdit& edit) { return to << edit.name; }
};

/// Both ends of a message have another number of elements, from another byte on.
void cut_message(Job& job, std::int64_t count, std::int64_t offset) {
  for (const char* pass : {"send", "exchange_output"}) {
    Collective& send = transfer(job, kFirst, pass, "layers.0.mid.send");
    send.count = count;
    send.input.shape = {count};
    send.input.offset = offset;
  }
  for (const char* pass : {"receive", "exchange"}) {
    Collective& recv = transfer(job, kSecond, pass, "layers.0.mid.recv");
    recv.count = count;
    recv.output.shape = {count};
    recv.output.offset = offset;
  }
}

void set_dtype(Operand& of, DType dtype) { of.dtype = dtype; }

const std::vector<JobEdit>& edits() {
  static const std::vector<JobEdit> all{
      // ---- microbatches: lags, instances, distances
      {"a call's lag is one more",
       [](Job& job) { call(job, kFirst, "steady", "backward").lag = 2; }},
      {"a call's lag is one less",
       [](Job& job) { call(job, kFirst, "steady", "backward").lag = 0; }},
      {"the first backward is of the newest microbatch",
       [](Job& job) { call(job, kFirst, "first", "first_backward").lag = 0; }},
      {"the drain is of the microbatch before",
       [](Job& job) { call(job, kFirst, "drain", "backward").lag = 1; }},
      {"the drain does not go on", [](Job& job) { segment(job, kFirst, "drain").repeat = 2; }},
      {"the drain stays at one microbatch",
       [](Job& job) { call(job, 0, "drain", "backward").lag_step = 0; }, "1f1b_4x8.json"},
      {"an op has a lag of its own",
       [](Job& job) { find_op(ops(job, kFirst, "backward"), "layers.0.qkv.wgrad")->lag = 1; }},
      {"a buffer has an instance too few",
       [](Job& job) { buffer(job, kFirst, "layers.0.qkv").instances.reset(); }},
      {"a buffer that is sent has an instance too few",
       [](Job& job) { buffer(job, kFirst, "layers.0.mlp_out").instances.reset(); }},
      {"a buffer has an instance more than bytes",
       [](Job& job) { buffer(job, kFirst, "layers.0.qkv").instances = 3; }},
      {"an event has an instance more",
       [](Job& job) {
         for (Program& program : job.programs)
           std::ranges::find(program.events, "output_sent", &Event::name)->instances = 3;
       }},
      {"a wait is for a record one run earlier",
       [](Job& job) {
         Op& op = *find_op(ops(job, kFirst, "forward"), "output_sent", OpKind::wait);
         for (Binding& binding : std::get<Wait>(op.body).bindings) ++binding.distance;
       }},
      {"a wait is for a record one run later",
       [](Job& job) {
         Op& op = *find_op(ops(job, kFirst, "forward"), "output_sent", OpKind::wait);
         for (Binding& binding : std::get<Wait>(op.body).bindings) --binding.distance;
       }},
      {"a microbatch is not in the gradients",
       [](Job& job) { segment(job, kFirst, "drain").calls.pop_back(); }},
      {"a microbatch is in the gradients twice",
       [](Job& job) {
         auto& calls = segment(job, kFirst, "steady").calls;
         calls.push_back(calls.back());
       }},
      {"the first microbatch adds to the last step's gradients",
       [](Job& job) {
         call(job, kFirst, "first", "first_backward").pass =
             call(job, kFirst, "steady", "backward").pass;
       }},
      {"a later microbatch overwrites gradients",
       [](Job& job) {
         call(job, kSecond, "steady", "backward").pass =
             call(job, kSecond, "first", "first_backward").pass;
       }},
      {"a stage has one microbatch less",
       [](Job& job) { segment(job, kSecond, "steady").repeat = 2; }},
      {"both stages have one microbatch less",
       [](Job& job) {
         segment(job, kFirst, "steady").repeat = 1;
         segment(job, kSecond, "steady").repeat = 2;
       }},
      {"labels are those of the microbatch before",
       [](Job& job) { exchange(job, kSecond, "forward", "tokens.copy", "tokens.h2d"); }},
      // ---- messages
      {"a gradient is sent to a stage that does not exist",
       [](Job& job) { transfer(job, kSecond, "exchange", "d_residual.send").peer->step = 1; }},
      {"a gradient is sent over one stage",
       [](Job& job) { transfer(job, 2, "exchange", "d_residual.send").peer->step = -2; },
       "1f1b_4x8.json"},
      {"activations come from the next stage",
       [](Job& job) { transfer(job, 1, "exchange", "layers.0.mid.recv").peer->step = 1; },
       "1f1b_4x8.json"},
      {"a stage's parts of the norm are received twice",
       [](Job& job) {
         std::vector<Collective*> recvs;
         for (Op& op : ops(job, 3, "optimizer"))
           if (auto* recv = std::get_if<Collective>(&op.body);
               recv != nullptr && recv->kind == CollectiveKind::recv)
             recvs.push_back(recv);
         recvs.at(1)->peer = recvs.at(2)->peer;
       },
       "1f1b_4x8.json"},
      {"a peer is along another axis",
       [](Job& job) {
         transfer(job, kSecond, "exchange", "d_residual.send").peer->axis = Axis::dp_shard;
       }},
      {"a send is missing",
       [](Job& job) { drop(job, kFirst, "exchange_output", "layers.0.mid.send"); }},
      {"a recv is missing", [](Job& job) { drop(job, kSecond, "exchange", "layers.0.mid.recv"); }},
      {"both ends of a message are missing",
       [](Job& job) {
         for (const char* pass : {"send", "exchange_output"})
           drop(job, kFirst, pass, "layers.0.mid.send");
         for (const char* pass : {"receive", "exchange"})
           drop(job, kSecond, pass, "layers.0.mid.recv");
       }},
      {"messages are sent in another order than they are received",
       [](Job& job) {
         exchange(job, kFirst, "exchange_output", "layers.0.mid.send", "layers.0.mlp_out.send");
       }},
      {"messages are received in another order than they are sent",
       [](Job& job) {
         exchange(job, kSecond, "exchange", "layers.0.mid.recv", "layers.0.mlp_out.recv");
       }},
      {"a recv has half the size of its send",
       [](Job& job) {
         Collective& recv = transfer(job, kSecond, "exchange", "layers.0.mid.recv");
         recv.count /= 2;
         recv.output.shape = {recv.count};
       }},
      {"half a tensor is sent and read as a whole", [](Job& job) { cut_message(job, 64, 0); }},
      {"the second half of a tensor is sent", [](Job& job) { cut_message(job, 64, 128); }},
      {"a message's count is not that of its operand",
       [](Job& job) { transfer(job, kFirst, "send", "layers.0.mid.send").count = 64; }},
      {"a message is a sum",
       [](Job& job) {
         transfer(job, kFirst, "send", "layers.0.mid.send").reduction = Reduction::sum;
       }},
      {"a message is of another dtype on both sides",
       [](Job& job) {
         for (const char* pass : {"send", "exchange_output"}) {
           Collective& send = transfer(job, kFirst, pass, "layers.0.mid.send");
           send.dtype = DType::fp16;
           set_dtype(send.input, DType::fp16);
         }
         for (const char* pass : {"receive", "exchange"}) {
           Collective& recv = transfer(job, kSecond, pass, "layers.0.mid.recv");
           recv.dtype = DType::fp16;
           set_dtype(recv.output, DType::fp16);
         }
       }},
      {"another tensor of the same size is sent",
       [](Job& job) {
         for (const char* pass : {"send", "exchange_output"})
           transfer(job, kFirst, pass, "layers.0.mid.send").input.buffer =
               buffer(job, kFirst, "layers.0.normed2").id;
       }},
      {"a message is received where another one is",
       [](Job& job) {
         transfer(job, kSecond, "exchange", "layers.0.mid.recv").output.buffer =
             buffer(job, kSecond, "layers.0.mlp_out").id;
       }},
      {"weights are sent in place of activations",
       [](Job& job) {
         Collective& send = transfer(job, kFirst, "send", "layers.0.mid.send");
         send.input.buffer = buffer(job, kFirst, "layers.0.model_weight").id;
       }},
      {"sends and recvs of a launch are apart",
       [](Job& job) {
         for (const std::size_t stage : {kFirst, kSecond})
           for (Pass& pass : test::train_plan(job, stage).passes)
             std::erase_if(pass.ops, [](const Op& op) {
               return op.kind() == OpKind::group_begin || op.kind() == OpKind::group_end;
             });
       }},
      // ---- order
      {"forward does not wait for what it receives",
       [](Job& job) { drop(job, kSecond, "forward", "input_received", OpKind::wait); }},
      {"a gradient is sent before it is made",
       [](Job& job) { drop(job, kSecond, "exchange", "gradient_made", OpKind::wait); }},
      {"a tensor is sent before it is made",
       [](Job& job) { drop(job, kFirst, "forward", "output_made", OpKind::wait); }},
      {"a tensor is released before it is sent",
       [](Job& job) {
         std::vector<Op>& list = ops(job, kFirst, "send");
         const auto release = find_op(list, "layers.0.mlp_out", OpKind::release);
         std::ranges::rotate(list.begin(), release, release + 1);
       }},
      {"a gradient is received while the last one is read",
       [](Job& job) { drop(job, 0, "receive_gradient", "gradient_read", OpKind::wait); },
       "1f1b_4x8.json"},
      {"weights are updated before the norm is known",
       [](Job& job) { drop(job, kFirst, "optimizer", "loss_ready", OpKind::wait); }},
      // ---- the step's sums
      {"a stage's part of the norm is missing",
       [](Job& job) { drop(job, kFirst, "optimizer", "layers.0.norm_partial"); }},
      {"a stage's part of the norm is received where its own is",
       [](Job& job) {
         transfer(job, kSecond, "optimizer", "norm_partials.recv").output.offset += 4;
       }},
      {"the norm has no part of other stages",
       [](Job& job) {
         drop(job, kFirst, "optimizer", "norm_partials.send");
         drop(job, kSecond, "optimizer", "norm_partials.recv");
       }},
      {"a stage updates with the last step's norm and 1/T",
       [](Job& job) {
         drop(job, kSecond, "optimizer", "report.send");
         drop(job, kFirst, "optimizer", "report.recv");
       }},
      {"a stage takes the loss for the norm",
       [](Job& job) {
         Collective& send = transfer(job, kSecond, "optimizer", "report.send");
         Collective& recv = transfer(job, kFirst, "optimizer", "report.recv");
         for (Collective* of : {&send, &recv}) of->count = 4;
         send.input.shape = recv.output.shape = {4};
         recv.output.offset = 16;
       }},
      {"the report is sent before the norm is finished",
       [](Job& job) { exchange(job, kSecond, "optimizer", "report.send", "norm.finish"); }},
      {"a stage does not update a unit",
       [](Job& job) { drop(job, kFirst, "optimizer", "embedding.adamw"); }},
      {"two stages have an embedding, each with its own gradient",
       [](Job& job) {
         Program& stage = job.programs[kSecond];
         for (const Buffer& of : job.programs[kFirst].buffers) {
           if (!of.persistent || of.unit != UnitId(0)) continue;
           Pool& pool = *std::ranges::find(stage.pools, of.pool, &Pool::id);
           Buffer& copy = stage.buffers.emplace_back(of);
           copy.id = BufferId(5000 + of.id.value);
           copy.offset = pool.height;
           pool.height += of.size;
         }
         Op update = *find_op(ops(job, kFirst, "optimizer"), "embedding.adamw");
         update.id = OpId(9000);
         for (Operand& of : std::get<Kernel>(update.body).operands)
           if (of.role != "step_block" && of.role != "loss" && of.role != "norm")
             of.buffer = BufferId(5000 + of.buffer.value);
         std::vector<Op>& list = ops(job, kSecond, "optimizer");
         list.insert(find_op(list, "layers.1.adamw"), update);
       }},
      // ---- classes and axes
      {"stages are along an axis of data",
       [](Job& job) {
         for (Program& program : job.programs) {
           program.config.mesh.dense[0].axis = Axis::dp_shard;
           program.classes[0].at[0].axis = Axis::dp_shard;
           for (Communicator& of : program.communicators) of.axes = {Axis::dp_shard};
           for (Plan& plan : program.plans)
             for (Op& op : ops_of(plan))
               if (auto* of = std::get_if<Collective>(&op.body); of != nullptr && of->peer)
                 of->peer->axis = Axis::dp_shard;
         }
       }},
      {"axes of communicators are exchanged",
       [](Job& job) {
         for (Program& program : job.programs)
           std::swap(program.communicators[0].axes, program.communicators[1].axes);
       },
       kWithData},
      {"classes are along the axis of data",
       [](Job& job) {
         for (Program& program : job.programs) program.classes[0].at[0].axis = Axis::dp_shard;
       },
       kWithData},
      {"a peer is along the axis of data",
       [](Job& job) {
         for (std::size_t stage : {kFirst, kSecond})
           for (const char* name : {"layers.0.mid.recv", "layers.0.mid.send"})
             for (Op& op : ops_of(test::train_plan(job, stage)))
               if (op.name == name) std::get<Collective>(op.body).peer->axis = Axis::dp_shard;
       },
       kWithData},
      {"messages are on the communicator of data",
       [](Job& job) {
         for (Program& program : job.programs)
           for (Op& op : ops_of(program.plans[0]))
             if (auto* of = std::get_if<Collective>(&op.body); of != nullptr && of->peer)
               of->communicator = program.communicators[1].id;
       },
       kWithData},
      {"a gradient is summed over stages",
       [](Job& job) {
         transfer(job, kFirst, "optimizer", "layers.0.all_reduce").communicator =
             job.programs[kFirst].communicators[0].id;
       },
       kWithData},
      {"a gradient is not summed over ranks of data",
       [](Job& job) { drop(job, kFirst, "optimizer", "layers.0.all_reduce"); }, kWithData},
      {"a gradient is summed over ranks of data twice",
       [](Job& job) {
         std::vector<Op>& list = ops(job, kFirst, "optimizer");
         Op again = *find_op(list, "layers.0.all_reduce");
         again.id = OpId(9000);
         list.insert(find_op(list, "layers.0.all_reduce"), again);
       },
       kWithData},
      {"losses are gathered over stages",
       [](Job& job) {
         transfer(job, kSecond, "optimizer", "loss.all_gather").communicator =
             job.programs[kSecond].communicators[0].id;
       },
       kWithData},
      {"parts of the norm are those of one rank",
       [](Job& job) {
         drop(job, kSecond, "optimizer", "norm.all_gather");
         Kernel& finish = kernel(job, kSecond, "optimizer", "norm.finish");
         operand(finish, "input").buffer = buffer(job, kSecond, "norm_partials").id;
         operand(finish, "input").shape = {4};
       },
       kWithData},
      {"parts of the norm are gathered before they are received",
       [](Job& job) {
         exchange(job, kSecond, "optimizer", "norm.all_gather", "norm_partials.recv");
       },
       kWithData},
      {"stages are in each other's place",
       [](Job& job) { std::swap(job.programs[kFirst].classes, job.programs[kSecond].classes); }},
      {"gradients are said to be summed over stages",
       [](Job& job) {
         for (Program& program : job.programs)
           for (Group& group : program.groups) group.reduce = {Axis::pp};
       }},
      {"chunks of a stage send each other's activations",
       [](Job& job) {
         // One stage receives for its second chunk what is meant for its first one.
         std::vector<Collective*> recvs;
         for (Op& op : ops_of(test::train_plan(job, kSecond)))
           if (auto* of = std::get_if<Collective>(&op.body);
               of != nullptr && op.name.ends_with(".mid.recv"))
             recvs.push_back(of);
         const auto other = std::ranges::find_if(recvs, [&](const Collective* of) {
           return of->output.buffer != recvs.front()->output.buffer;
         });
         std::swap(recvs.front()->output.buffer, (*other)->output.buffer);
       },
       "interleaved_2x2x4.json"},
      {"late weight gradients are of the microbatch after",
       [](Job& job) {
         for (Segment& of : test::train_plan(job, kSecond).segments)
           for (Op& op : of.ops)
             if (op.name == "layers.1.down.wgrad" && op.lag > 0) --op.lag;
       },
       "zero_bubble_2x4.json"},
  };
  return all;
}

class JobEdits : public testing::TestWithParam<JobEdit> {};

TEST_P(JobEdits, AreFoundAndRefused) {
  const Job right = test::pipeline(GetParam().plan);
  Job job = right;
  GetParam().make(job);
  ASSERT_NE(to_canonical_json(job), to_canonical_json(right));
  const ProofSettings one_of_each{.steps = 2, .repetitions = 2, .most_findings = 1};
  const auto proof = prove_job(job, one_of_each);
  EXPECT_TRUE(!proof || has_errors(proof->findings));
  const auto of_itself = unproved_certificate(job);
  if (of_itself) {
    EXPECT_FALSE(check_certificate(to_canonical_json(job), *of_itself));
  }
  const auto of_right = forged_certificate(job, right);
  ASSERT_TRUE(of_right);
  EXPECT_FALSE(check_certificate(to_canonical_json(job), *of_right));
}

INSTANTIATE_TEST_SUITE_P(All, JobEdits, testing::ValuesIn(edits()));

}  // namespace
}  // namespace mfsdp
