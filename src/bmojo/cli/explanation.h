#pragma once

#include <cstdint>

#include "bmojo/base/json.h"
#include "bmojo/nn/model.h"
#include "bmojo/train/source.h"

namespace bmojo {

// What one sequence was remembered by, as `bmojo explain --json` prints it (docs/tasks.md): the
// innovation of each token, what each layer's eidetic memory held and let go, and what the queries
// attended to where an answer is due. Without targets the last token alone is asked.
Json explain(const nn::Model& model, const train::Batch& sequence);

// The layer to look at where none is named: the last with eidetic memory, else the last with
// attention, else the last.
int64_t telling_layer(const Config& config);

}  // namespace bmojo
