#pragma once

#include "bmojo/base/json.h"
#include "bmojo/nn/model.h"
#include "bmojo/train/source.h"

namespace bmojo {

// The layers of a model on one sequence, seen as realizations (docs/realization.md): the poles that
// each SSM used, what the memories added to each attention's output, and whether what the fixed
// predictor leaves is white. Error where the model has no SSM or no attention, or the sequence is
// too short for the test of whiteness.
Json explain_realization(const nn::Model& model, const train::Batch& sequence);

// The same as tables.
void print_realization(const Json& told);

}  // namespace bmojo
