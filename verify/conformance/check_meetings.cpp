#include <fmt/format.h>

#include <map>

#include "verify/conformance/checked_run.hpp"
#include "verify/findings/place_names.hpp"

namespace mfsdp {
namespace {

/// The ranks that joined a collective last and that ended it first.
struct Meeting {
  const RankRecord* last_come = nullptr;
  const RankRecord* first_gone = nullptr;
};

void check_meeting(CheckedRun& run, std::size_t i, const Meeting& meeting) {
  const Nanos come = meeting.last_come->launches[i]->begin;
  const Nanos gone = meeting.first_gone->launches[i]->end;
  if (holds(run, {.rank = meeting.first_gone->rank,
                  .first = i,
                  .then = i,
                  .over = come,
                  .came = gone,
                  .abuts = true}) ||
      !run.findings.wants("MF808"))
    return;
  const Place place = run.place(i);
  run.findings.add(
      {.rule = "MF808",
       .message = fmt::format("{}: {} ended at {} ns, {} ns before rank {} had come to it",
                              where(meeting.first_gone->rank, place), to_text(place), gone.value,
                              (come - gone).value, meeting.last_come->rank),
       .places = {place}});
}

}  // namespace

void check_meetings(CheckedRun& run, std::span<const RankRecord> records) {
  for (std::size_t i = 0; i < run.size(); ++i) {
    const Op& op = *run.instances.at(i % run.instances.size()).op;
    const auto* collective = std::get_if<Collective>(&op.body);
    if (collective == nullptr) continue;
    const Communicator& communicator =
        run.program.communicators[run.communicators[collective->communicator]];
    const Membership membership(communicator.axes, run.program.config.mesh);
    std::map<std::int64_t, Meeting> meetings;
    for (const RankRecord& record : records) {
      if (!record.timed[i]) continue;
      Meeting& meeting = meetings[membership.of(record.rank)];
      if (meeting.last_come == nullptr) meeting = {.last_come = &record, .first_gone = &record};
      if (record.launches[i]->begin > meeting.last_come->launches[i]->begin)
        meeting.last_come = &record;
      if (record.launches[i]->end < meeting.first_gone->launches[i]->end)
        meeting.first_gone = &record;
    }
    for (const auto& [group, meeting] : meetings)
      if (meeting.last_come != meeting.first_gone) check_meeting(run, i, meeting);
  }
}

}  // namespace mfsdp
