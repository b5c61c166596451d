#include <array>

#include "verify/checker/check_certificate.hpp"

namespace mfsdp {
namespace {

constexpr std::array kCoverage{
    Coverage{"order", true,
             "each number of each clock, by streams, events, communicators, groups and the host",
             ""},
    Coverage{"races", true,
             "every access follows what it conflicts with, by the bytes that operands span on all "
             "ranks (a plan that is right only by the gaps between them is refused)",
             "MF101 MF108"},
    Coverage{"lifetimes", true,
             "accesses lie between acquire and release, and no two live buffers share bytes",
             "MF102 MF103 MF106 MF107"},
    Coverage{"collectives", true,
             "count, dtype and reduction fit operands and communicator; the sequence is hashed",
             "MF204"},
    Coverage{"gradients", true,
             "norm and updates read each use of each microbatch of each rank once, nothing else",
             "MF301 MF302 MF303 MF304 MF305 MF306 MF309"},
    Coverage{"tiling", true,
             "slices that operands touch are equal parts of their group, operands of an update are "
             "one slice, and every trainable group is updated once a step",
             "MF504 MF505"},
    Coverage{"structure", false, "fields of the plan that the checks above do not go by",
             "MF001 MF002 MF003 MF004 MF005 MF006"},
    Coverage{"kernels", false,
             "whether operands, dtypes and attributes fit a kernel; declared access is believed",
             "MF007"},
    Coverage{"records", false, "the records that waits name: a wait gets the last one issued",
             "MF104 MF105"},
    Coverage{"values", false,
             "whether what a kernel reads was written, and is what the model has there",
             "MF111 MF113"},
    Coverage{"reports", false, "whether a step's loss and norm reach the host", "MF115"},
    Coverage{"meetings", false,
             "cycles of collectives: all ranks issue one sequence, and a wait is only for what was "
             "issued before it",
             "MF201 MF202 MF203"},
    Coverage{"scales", false, "1/T, the norm, and the number of microbatches of a step",
             "MF307 MF308 MF311 MF312"},
    Coverage{"sums", false, "the dtypes in which gradients are summed", "MF310"},
    Coverage{"weights", false, "which step's weights a kernel reads, and of which unit",
             "MF401 MF402 MF403"},
    Coverage{"parameters", false,
             "places of parameters in groups and of groups in buffers, and what all ranks' slices "
             "are together",
             "MF501 MF502 MF503 MF506"},
    Coverage{"bounds", false, "how much is live at most", "MF601 MF602"},
    Coverage{"execution", false,
             "whether kernels compute what they are called, and whether a run follows the plan",
             ""},
};

}  // namespace

std::span<const Coverage> coverage() { return kCoverage; }

}  // namespace mfsdp
