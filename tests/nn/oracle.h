#pragma once

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "bmojo/memory/eidetic_sets.h"
#include "bmojo/model/config.h"
#include "bmojo/nn/model.h"

namespace bmojo::test {

// The layer as docs/model.md states it, one token of one document at a time, every past row kept:
// no chunks, no pools, no indices. Slow and obvious; it shares no code with nn/.
class Oracle {
 public:
  Oracle(const model::Config& config, model::LayerKind kind, const nn::Parameters& parameters,
         int64_t layer = 0, nn::SoftCut cut = {})
      : c_(config),
        kind_(kind),
        parameters_(parameters),
        layer_(layer),
        cut_(cut),
        prefix_(fmt::format("layers.{}.", layer)) {
    h_ = at::zeros({c_.ssm_inner_size, c_.ssm_state_size}, at::kDouble);
  }

  at::Tensor step(const at::Tensor& x) {
    const int64_t t = t_++, w = c_.window == 0 ? std::numeric_limits<int64_t>::max() : c_.window;
    const auto u = norm(x, "norm.weight");
    auto out = x;
    if (kind_ != model::LayerKind::attention) ys_.push_back(ssm(u));
    if (kind_ == model::LayerKind::bmojo) innovation.push_back(error(t));
    if (t % w == 0) frozen_ = running_;
    if (kind_ != model::LayerKind::ssm) out = out + attention(u, t, w);
    if (kind_ == model::LayerKind::ssm || (kind_ == model::LayerKind::bmojo && c_.fading_residual))
      out = out + ys_.back();
    if (kind_ == model::LayerKind::bmojo) remember(t);
    if (c_.mlp_size > 0) {
      const auto v = norm(out, "mlp.norm.weight");
      out = out + mv("mlp.down_proj.weight",
                     at::silu(mv("mlp.gate_proj.weight", v)) * mv("mlp.up_proj.weight", v));
    }
    return out;
  }

  std::vector<int64_t> running() const { return running_; }  // M, by time
  std::vector<double> innovation;                            // ε_0 … ε_t
  std::vector<double> largest_weights;  // of each query and head: the most that one key got

  // Over the mean of the whole set, whichever of its members a query sees. With a soft cut the mean
  // is that of the members that are kept.
  double eidetic_bias(int64_t p, std::vector<int64_t> members) const {
    const auto log_e = [&](int64_t position) { return std::log(innovation[position] + 1e-6); };
    double bias = 0, mean = 0;
    if (cut_.places > 0 && std::ssize(members) > cut_.places) {
      std::ranges::stable_sort(members, std::greater{},
                               [&](auto each) { return innovation[each]; });
      const double level = (log_e(members[cut_.places - 1]) + log_e(members[cut_.places])) / 2;
      bias = -std::log1p(std::exp(-(log_e(p) - level) / cut_.temperature));
      members.resize(cut_.places);
    }
    if (!c_.innovation_bias) return bias;
    for (const auto each : members) mean += log_e(each) / static_cast<double>(members.size());
    return bias + get("attention.innovation_bias").item<double>() * (log_e(p) - mean);
  }

 private:
  at::Tensor get(const std::string& leaf) const {
    for (const auto& [name, tensor] : parameters_)
      if (name == prefix_ + leaf) return tensor;
    return {};
  }
  at::Tensor mv(const std::string& leaf, const at::Tensor& x) const { return at::mv(get(leaf), x); }
  at::Tensor plus(const at::Tensor& x, const std::string& leaf) const {
    const auto bias = get(leaf);
    return bias.defined() ? x + bias : x;
  }
  at::Tensor norm(const at::Tensor& x, const std::string& leaf) const {
    return x / at::sqrt((x * x).mean() + c_.norm_eps) * get(leaf);
  }

  at::Tensor ssm(const at::Tensor& u) {
    const int64_t E = c_.ssm_inner_size, N = c_.ssm_state_size, R = c_.ssm_dt_rank;
    const auto xz = plus(mv("ssm.in_proj.weight", u), "ssm.in_proj.bias");
    conv_.push_back(xz.slice(0, 0, E));
    auto sum = at::zeros({E}, at::kDouble);
    for (int64_t i = 0; i < c_.ssm_conv_taps && i < std::ssize(conv_); ++i)
      sum += get("ssm.conv1d.weight").select(2, c_.ssm_conv_taps - 1 - i).squeeze(1) *
             conv_[conv_.size() - 1 - i];
    const auto x = at::silu(plus(sum, "ssm.conv1d.bias"));
    const auto dbc = mv("ssm.x_proj.weight", x);
    const auto pre = mv("ssm.dt_proj.weight", dbc.slice(0, 0, R)) + get("ssm.dt_proj.bias");
    const auto delta = at::where(pre > 20, pre, (1 + pre.exp()).log());
    const auto A = -get("ssm.A_log").exp();
    h_ = (delta.unsqueeze(1) * A).exp() * h_ + at::outer(delta * x, dbc.slice(0, R, R + N));
    const auto y = at::mv(h_, dbc.slice(0, R + N, R + 2 * N)) + get("ssm.D") * x;
    return plus(mv("ssm.out_proj.weight", y * at::silu(xz.slice(0, E, 2 * E))),
                "ssm.out_proj.bias");
  }

  double error(int64_t t) const {
    double total = 0;
    for (int64_t i = 0; i < c_.predictor_taps; ++i) total += std::pow(c_.predictor_decay, i);
    auto predicted = at::zeros_like(ys_.back());
    for (int64_t i = 1; i <= c_.predictor_taps && i <= t; ++i)
      predicted += std::pow(c_.predictor_decay, i - 1) / total * ys_[t - i];
    const auto e = ys_[t] - predicted;
    return at::sqrt((e * e).mean()).item<double>();
  }

  void remember(int64_t t) {
    if (c_.eidetic_tokens == 0) return;
    running_.push_back(t);
    if (std::ssize(running_) <= c_.eidetic_tokens) return;
    // The newcomer leaves unless its rank exceeds the smallest; else the smallest, and of equals
    // the latest, makes room: both are "the last of the smallest" in time order.
    auto worst = running_.begin();
    for (auto it = running_.begin(); it != running_.end(); ++it)
      if (rank(*it) <= rank(*worst)) worst = it;
    running_.erase(worst);
  }

  double rank(int64_t p) const {
    if (c_.eidetic_rule == "first") return -static_cast<double>(p);
    if (c_.eidetic_rule == "recent") return static_cast<double>(p);
    if (c_.eidetic_rule == "random") return memory::random_rank(layer_, p, -1);  // no token ids
    return innovation[p];
  }

  struct Key {
    at::Tensor k, v;  // [G, d]
    double bias;
  };

  at::Tensor rope(const at::Tensor& x, int64_t p) const {  // [heads, d]
    if (c_.rope_theta == 0) return x;
    auto out = x.clone();
    const int64_t half = c_.head_size / 2;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = p * std::pow(c_.rope_theta, -2.0 * i / c_.head_size);
      const auto a = x.select(1, i), b = x.select(1, i + half);
      out.select(1, i).copy_(a * std::cos(angle) - b * std::sin(angle));
      out.select(1, i + half).copy_(b * std::cos(angle) + a * std::sin(angle));
    }
    return out;
  }

  Key make_key(const at::Tensor& x, int64_t p, bool fading) const {
    const bool own = fading && !c_.fading_tied;
    const auto heads = [&](const std::string& leaf) {
      return mv(leaf, x).reshape({c_.num_kv_heads, c_.head_size});
    };
    return {rope(heads(own ? "attention.fading_k_proj.weight" : "attention.k_proj.weight"), p),
            heads(own ? "attention.fading_v_proj.weight" : "attention.v_proj.weight"), 0};
  }

  at::Tensor attention(const at::Tensor& u, int64_t t, int64_t w) {
    window_.push_back(make_key(u, t, false));
    std::vector<Key> keys;
    if (kind_ == model::LayerKind::bmojo) {
      for (const auto p : frozen_)
        if (p <= t - w) {
          keys.push_back(window_[p]);
          keys.back().bias = eidetic_bias(p, frozen_);
        }
      const int64_t s = t / w * w, m_f = c_.fading_tokens;
      const int64_t last = c_.fading_mode == "chunk" ? s - 1 : t - w;
      for (int64_t p = std::max<int64_t>(0, last - m_f + 1); p <= last; ++p)
        keys.push_back(make_key(norm(ys_[p], "attention.fading_norm.weight"), p, true));
    }
    for (int64_t p = t < w ? 0 : t - w + 1; p <= t; ++p) keys.push_back(window_[p]);

    const int64_t H = c_.num_heads, d = c_.head_size;
    const auto q = rope(mv("attention.q_proj.weight", u).reshape({H, d}), t);
    std::vector<at::Tensor> heads;
    for (int64_t head = 0; head < H; ++head) {
      const int64_t g = head * c_.num_kv_heads / H;
      auto numerator = at::zeros({d}, at::kDouble);
      double denominator = 0, largest = 0;
      for (const auto& key : keys) {
        const double score = at::dot(q[head], key.k[g]).item<double>() / std::sqrt(d) + key.bias;
        numerator += std::exp(score) * key.v[g];
        denominator += std::exp(score);
        largest = std::max(largest, std::exp(score));
      }
      largest_weights.push_back(largest / denominator);
      heads.push_back(numerator / denominator);
    }
    return mv("attention.o_proj.weight", at::cat(heads));
  }

  model::Config c_;
  model::LayerKind kind_;
  nn::Parameters parameters_;
  int64_t layer_;
  nn::SoftCut cut_;
  std::string prefix_;
  int64_t t_ = 0;
  at::Tensor h_;
  std::vector<at::Tensor> conv_, ys_;
  std::vector<Key> window_;
  std::vector<int64_t> running_, frozen_;
};

}  // namespace bmojo::test
