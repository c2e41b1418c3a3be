#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "bmojo/base/json.h"
#include "bmojo/nn/model.h"
#include "bmojo/train/source.h"

namespace bmojo {

inline constexpr std::array kMemories = {"eidetic", "fading", "window"};  // as nn::Memory
inline constexpr std::array kKinds = {"bmojo", "ssm", "attention"};       // as LayerKind

// Reads a sequence segment by segment, the memories carried on, and shows each to `visit` with its
// first position and its length.
void read_segments(
    const nn::Model& model, const train::Batch& sequence, nn::CallOptions call,
    const std::function<void(const nn::Output& out, int64_t from, int64_t count)>& visit);

// What one sequence was remembered by, as `bmojo explain --json` prints it (docs/tasks.md): the
// innovation of each token, what each layer's eidetic memory held and let go, and what the queries
// attended to where an answer is due. Without targets the last token alone is asked.
Json explain(const nn::Model& model, const train::Batch& sequence);

// The layer to look at where none is named: the last with eidetic memory, else the last with
// attention, else the last.
int64_t telling_layer(const Config& config);

}  // namespace bmojo
