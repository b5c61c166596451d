// Where the proofs find the list of findings, which checks of other rooms make as well.
#pragma once

#include "verify/findings/finding_list.hpp"
