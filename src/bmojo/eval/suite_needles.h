#pragma once

#include <cstdint>

#include "bmojo/eval/suite.h"

namespace bmojo::eval {

// The makers of Suite::make: texts with something to be found in them, put together as in
// lm-evaluation-harness 0.4.13. As much noise as the length allows stands around it. Error naming
// --length where that is too short.
Item make_niah_single(const Making& making, uint64_t number);
Item make_ruler_vt(const Making& making, uint64_t number);

}  // namespace bmojo::eval
