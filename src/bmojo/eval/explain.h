#pragma once

#include "bmojo/base/json.h"
#include "bmojo/data/batch.h"
#include "bmojo/eval/language_model.h"

namespace bmojo::eval {

inline constexpr std::array kKinds = {"bmojo", "ssm", "attention"};  // as LayerKind

// What one sequence was remembered by, as `bmojo explain --json` prints it (docs/tasks.md): the
// innovation of each token, what each layer's eidetic memory held and let go, and what the queries
// attended to where an answer is due. Without targets the last token alone is asked. `sequence` is
// a batch of one.
base::Json explain(const LanguageModel& model, const data::Batch& sequence);

// The layer to look at where none is named: the last with eidetic memory, else the last with
// attention, else the last.
int64_t telling_layer(const model::Config& config);

}  // namespace bmojo::eval
