#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bmojo/eval/observer.h"
#include "bmojo/infer/state.h"
#include "bmojo/infer/weights.h"
#include "bmojo/kernels/memory_attention_step.h"
#include "bmojo/kernels/parallel.h"

// Shapes: T tokens of a call, and the letters of weights.h.

namespace bmojo::infer {

// A piece of one sequence: tokens of one chunk, rows [first, first + count) of the call's arrays.
struct Run {
  State* state = nullptr;
  std::span<const int64_t> ids;
  int64_t first = 0;
  int64_t position = 0;                          // of the first, in its document
  int64_t sequence = 0, column = 0;              // whose it is, and where in the input
  const std::vector<int64_t>* wanted = nullptr;  // of eidetic_rule=oracle

  int64_t count() const { return std::ssize(ids); }
};

// What a pass through the layers writes between them; kept from call to call, so that a step
// allocates nothing.
struct Workspace {
  std::vector<float> x, u, change;          // [T, D] the residual stream, its norm, what is added
  std::vector<float> xzq, kv;               // [T, 2 E + H d], [T, 2, G, d]
  std::vector<float> x_bar, dbc, dt, read;  // [T, E], [T, R + 2 N], [T, E], [T, E]
  std::vector<float> y, innovation;         // [T, D], [T]
  std::vector<float> q, k, mixed;           // [T, H d] turned, [T, G d] turned, [T, H d]
  std::vector<float> faded, faded_kv;       // fading tokens of the call [n, D], [n, 2, G, d]
  std::vector<float> both, gated;           // [T, 2 F], [T, F]
  std::vector<float> cos, sin;              // [T, d / 2]
  std::vector<float> faded_cos, faded_sin;  // [n, d / 2]
  std::vector<int64_t> positions;           // [T]
  std::vector<float> conv_tail, outputs;    // of each run: what its state will hold
  std::vector<float> bias;                  // of each run [m]
  std::vector<float> pool;                  // the rows that a run of several tokens sees
  std::vector<int64_t> index, from, until;  // of them
  std::vector<kernels::AttentionStep> steps;
  std::vector<SelectionScratch> selection;  // of each run
};

struct Call {
  const Weights& weights;
  std::span<const double> frequencies;  // [d / 2] of the rotary encoding; empty: none
  std::span<const float> predictor;     // [k]
  std::span<const Run> runs;
  int64_t T;
  Workspace& ws;
  const kernels::ParallelFor& parallel;
  eval::Observer* observer = nullptr;
};

// What is the same for all layers: positions and rotary angles.
void begin_call(const Call& call);

// ws.x [T, D] through layer i; the states of the runs go on.
void forward_layer(const Call& call, int64_t i);

}  // namespace bmojo::infer
