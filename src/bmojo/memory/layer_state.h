#pragma once

#include <cstdint>

namespace bmojo::memory {

// What one layer carries from call to call (docs/model.md, Streaming), in arrays of an engine's own
// kind: `Numbers` of floats, `Integers` of 64 bits. A key and its value are one row, kv = [2, G,
// d]. Per sequence; fields that a layer does not have are empty.
template <typename Numbers, typename Integers>
struct LayerState {
  // An eidetic set by time. Token ids only show people what is remembered (-1: not given).
  struct Set {
    Numbers innovation;  // [m]
    Integers position;   // [m]
    Integers token;      // [m]
  };
  Numbers conv_tail;  // [K-1, E] last inputs of the convolution
  Numbers ssm;        // [E, N] h
  Numbers outputs;    // [k, D] last outputs y, for the predictor
  Numbers window;     // [rows, kv] the last w tokens
  Numbers fading;     // [rows, kv]
  Numbers eidetic;    // [m, kv] of the frozen set
  Set frozen;         // M at the start of the chunk: what queries see
  Set running;        // M now; a member that is not frozen is still in the window

  // The one list of its fields: numbers(name, field) and integers(name, field), always in this
  // order. Gradients pass through the numbers alone.
  template <typename Self, typename OfNumbers, typename OfIntegers>
  static void visit(Self& state, OfNumbers&& numbers, OfIntegers&& integers) {
    numbers("conv_tail", state.conv_tail);
    numbers("ssm", state.ssm);
    numbers("outputs", state.outputs);
    numbers("window", state.window);
    numbers("fading", state.fading);
    numbers("eidetic", state.eidetic);
    numbers("frozen.innovation", state.frozen.innovation);
    integers("frozen.position", state.frozen.position);
    integers("frozen.token", state.frozen.token);
    numbers("running.innovation", state.running.innovation);
    integers("running.position", state.running.position);
    integers("running.token", state.running.token);
  }
};

}  // namespace bmojo::memory
