#include <array>

#include "verify/checker/check_certificate.hpp"

namespace mfsdp {
namespace {

constexpr std::array kCoverage{
    Coverage{"order", true,
             "each number of each clock, by streams, events, communicators, groups and the host",
             ""},
    Coverage{"records", true, "the records that waits name are those that they get", "MF104 MF105"},
    Coverage{"races", true,
             "every access follows what it conflicts with, by the bytes that operands span on all "
             "ranks (a plan that is right only by the gaps between them is refused)",
             "MF101 MF108"},
    Coverage{"lifetimes", true,
             "accesses lie between acquire and release, and no two live buffers share bytes",
             "MF102 MF103 MF106 MF107"},
    Coverage{
        "collectives", true,
        "count, dtype and reduction fit operands and communicator, windows their transport; the "
        "sequence is hashed",
        "MF204 MF205"},
    Coverage{"messages", true,
             "between classes of ranks: each message is received as it was sent, and all classes "
             "reach their ends",
             "MF206"},
    Coverage{"kernels", true,
             "each is a step of the configured model: access, dtypes, shapes, strides, attributes",
             "MF007"},
    Coverage{"values", true, "what a kernel reads was written, and is what the model has there",
             "MF111 MF113"},
    Coverage{"weights", true,
             "kernels read the weights of this step, of their unit; after it each group that "
             "trains was updated once",
             "MF401 MF402 MF403"},
    Coverage{
        "directions", true,
        "updates use this step's momentum, each matrix orthogonalised once as a whole, distributed "
        "over ranks and returned as buffers state",
        "MF405"},
    Coverage{"gradients", true,
             "norm and updates read the gradient of each parameter, microbatch and rank once, from "
             "each step of the model that gives one, and nothing else",
             "MF301 MF302 MF303 MF304 MF305 MF306 MF309"},
    Coverage{"scales", true,
             "1/T and the norm are this step's, of all tokens, groups and ranks; microbatches are "
             "as many as configured",
             "MF307 MF308 MF311 MF312 MF313"},
    Coverage{"sums", true, "gradients are summed in the dtypes that are configured", "MF310"},
    Coverage{"tiling", true,
             "slices that operands touch are equal parts of their group, operands of an update are "
             "one slice, each in the buffer that holds it",
             "MF504 MF505"},
    Coverage{"parameters", true,
             "groups hold the configured model's parameters, each once, without overlap",
             "MF501 MF502 MF503 MF506"},
    Coverage{"reports", true, "each step's loss and norm reach the host", "MF115"},
    Coverage{"structure", false,
             "fields that no check above goes by: names, phases, categories, costs",
             "MF001 MF002 MF003 MF004 MF005 MF006"},
    Coverage{"meetings", false,
             "cycles of collectives: all ranks issue one sequence, and a wait is only for what was "
             "issued before it",
             "MF201 MF202 MF203"},
    Coverage{"bounds", false, "how much is live at most", "MF601 MF602"},
    Coverage{"execution", false,
             "whether kernels compute what they are called, and whether a run follows the plan",
             ""},
};

}  // namespace

std::span<const Coverage> coverage() { return kCoverage; }

}  // namespace mfsdp
