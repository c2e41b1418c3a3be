#pragma once

namespace bmojo::model {

// The weights of a layer by what they are, in an engine's own kind of array; those that a layer
// does not have are empty. The one list of their names, as a checkpoint has them behind
// "layers.N.".
template <typename Array>
struct LayerWeights {
  Array norm;
  Array in, in_bias, conv, conv_bias, x, dt, dt_bias, a_log, d, out, out_bias;
  Array q, k, v, o, fading_norm, fading_k, fading_v, beta;
  Array mlp_norm, gate, up, down;

  template <typename Self, typename Visit>
  static void visit(Self& weights, Visit&& each) {
    each("norm.weight", weights.norm);
    each("ssm.in_proj.weight", weights.in);
    each("ssm.in_proj.bias", weights.in_bias);
    each("ssm.conv1d.weight", weights.conv);
    each("ssm.conv1d.bias", weights.conv_bias);
    each("ssm.x_proj.weight", weights.x);
    each("ssm.dt_proj.weight", weights.dt);
    each("ssm.dt_proj.bias", weights.dt_bias);
    each("ssm.A_log", weights.a_log);
    each("ssm.D", weights.d);
    each("ssm.out_proj.weight", weights.out);
    each("ssm.out_proj.bias", weights.out_bias);
    each("attention.q_proj.weight", weights.q);
    each("attention.k_proj.weight", weights.k);
    each("attention.v_proj.weight", weights.v);
    each("attention.o_proj.weight", weights.o);
    each("attention.fading_norm.weight", weights.fading_norm);
    each("attention.fading_k_proj.weight", weights.fading_k);
    each("attention.fading_v_proj.weight", weights.fading_v);
    each("attention.innovation_bias", weights.beta);
    each("mlp.norm.weight", weights.mlp_norm);
    each("mlp.gate_proj.weight", weights.gate);
    each("mlp.up_proj.weight", weights.up);
    each("mlp.down_proj.weight", weights.down);
  }
};

}  // namespace bmojo::model
