#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/inspect.h"
#include "bmojo/data/tokenizer.h"
#include "bmojo/infer/snapshot.h"
#include "bmojo/memory/visibility.h"
#include "bmojo/model/checkpoint.h"

// What a model remembers now.

namespace bmojo::cli {
namespace fs = std::filesystem;
namespace {

// An eidetic token. Seen: in the set that queries of this chunk see. Kept: in the set as it is now,
// which the next chunk will see.
struct Member {
  int64_t position, token;
  double innovation;
  bool seen, kept;
  std::optional<std::string> text;

  std::string_view status() const { return !seen ? "new" : kept ? "" : "leaves"; }
};

// Both sets as one, by time.
std::vector<Member> members_of(const infer::LayerState& layer) {
  const auto &frozen = layer.frozen, &running = layer.running;
  std::vector<Member> members;
  for (size_t i = 0, j = 0; i < frozen.position.size() || j < running.position.size();) {
    const bool has_frozen = i < frozen.position.size(), has_running = j < running.position.size();
    const bool seen = has_frozen && (!has_running || frozen.position[i] <= running.position[j]);
    const bool kept = has_running && (!has_frozen || running.position[j] <= frozen.position[i]);
    const auto& set = seen ? frozen : running;
    const size_t at = seen ? i : j;
    members.push_back({set.position[at], set.token[at], set.innovation[at], seen, kept, {}});
    i += seen;
    j += kept;
  }
  return members;
}

double norm_of(const std::vector<float>& numbers) {
  double sum = 0;
  for (const double x : numbers) sum += x * x;
  return std::sqrt(sum);
}

// What the report says of a layer; a span without positions is empty.
struct Layer {
  model::LayerKind kind;
  memory::Span window, fading;
  std::optional<double> h_norm;
  std::vector<Member> eidetic;
};

Layer describe(const infer::Snapshot& snapshot, int64_t i, const data::Tokenizer* tokenizer) {
  const auto& config = snapshot.origin.config;
  const auto& state = snapshot.state.layers[static_cast<size_t>(i)];
  const int64_t t = snapshot.state.position;
  Layer layer{config.kind(i), {0, -1}, {0, -1}, {}, members_of(state)};
  if (layer.kind != model::LayerKind::attention) layer.h_norm = norm_of(state.ssm);
  if (layer.kind != model::LayerKind::ssm) {
    const infer::MemoryShape shape(config, i);
    layer.window = {t - shape.window.num_rows(t), t - 1};
    if (shape.fading.m_f > 0) layer.fading = shape.fading.keys(t, 1);
    layer.fading.first = std::max<int64_t>(0, layer.fading.first);
  }
  for (auto& member : layer.eidetic)
    if (tokenizer != nullptr && member.token < tokenizer->vocab_size())
      member.text = tokenizer->decode_behind(static_cast<int32_t>(member.token));
  return layer;
}

std::string_view name_of(model::LayerKind kind) {
  return kind == model::LayerKind::bmojo ? "bmojo"
         : kind == model::LayerKind::ssm ? "ssm"
                                         : "attention";
}

base::Json span_json(const memory::Span& span) {
  if (span.count() == 0) return nullptr;
  return {{"first", span.first}, {"last", span.last}};
}

base::Json layer_json(const Layer& layer) {
  base::Json eidetic = base::Json::array();
  for (const auto& member : layer.eidetic)
    eidetic.push_back({{"position", member.position},
                       {"token", member.token},
                       {"text", member.text ? base::Json(*member.text) : base::Json(nullptr)},
                       {"innovation", member.innovation},
                       {"seen", member.seen},
                       {"kept", member.kept}});
  return {{"kind", name_of(layer.kind)},
          {"window", span_json(layer.window)},
          {"fading", span_json(layer.fading)},
          {"fading_state_norm", layer.h_norm ? base::Json(*layer.h_norm) : base::Json(nullptr)},
          {"eidetic", eidetic}};
}

std::string span_text(const memory::Span& span) {
  if (span.count() == 0) return "none";
  return fmt::format("{} … {} ({})", base::grouped(span.first), base::grouped(span.last),
                     base::grouped(span.count()));
}

// Without blanks at its end.
void print_line(const std::string& line) {
  fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
}

void print_layer(const Layer& layer, int64_t number, bool has_text) {
  fmt::print("\nlayer {}, {}\n", number, name_of(layer.kind));
  if (layer.kind != model::LayerKind::ssm) print_row("  window", span_text(layer.window));
  if (layer.kind == model::LayerKind::bmojo) print_row("  fading", span_text(layer.fading));
  if (layer.h_norm) print_row("  norm of h", fmt::format("{:.6g}", *layer.h_norm));
  if (layer.eidetic.empty()) return;
  print_line(fmt::format("  eidetic {:>14} {:>9} {:>12}  {:<7}{}", "position", "token",
                         "innovation", "", has_text ? "text" : ""));
  for (const auto& member : layer.eidetic) {
    std::string text;
    if (member.text)
      text = base::Json(*member.text).dump(-1, ' ', false, base::Json::error_handler_t::replace);
    print_line(fmt::format("          {:>14} {:>9} {:>12.6g}  {:<7}{}",
                           base::grouped(member.position), member.token, member.innovation,
                           member.status(), base::printable(text, 22)));
  }
}

void print_state(const infer::Snapshot& snapshot, const StateName& name,
                 const std::vector<Layer>& layers, bool has_text) {
  const auto& [origin, state, logits, sampler] = snapshot;
  print_row("state", name.text);
  print_row("model", model_text(origin.config));
  print_row("weights", origin.digest);
  print_row("position", fmt::format("{} tokens read", base::grouped(state.position)));
  if (name.file_bytes) print_row("file", fmt::format("{} B", base::grouped(*name.file_bytes)));
  if (const int64_t growth = growth_of(origin.config); growth > 0)
    print_row("",
              fmt::format("the window is unlimited and adds {} B a token", base::grouped(growth)));
  print_row("sampling", fmt::format("seed {}, next draw {}", sampler.seed,
                                    base::grouped(static_cast<int64_t>(sampler.counter))));
  for (size_t i = 0; i < layers.size(); ++i)
    print_layer(layers[i], static_cast<int64_t>(i), has_text);
}

base::Json state_json(const infer::Snapshot& snapshot, const StateName& name,
                      const std::vector<Layer>& layers) {
  const auto& [origin, state, logits, sampler] = snapshot;
  base::Json list = base::Json::array();
  for (const auto& layer : layers) list.push_back(layer_json(layer));
  return {{"kind", "state"},
          {"position", state.position},
          {"bytes", name.file_bytes ? base::Json(*name.file_bytes) : base::Json(nullptr)},
          {"digest", origin.digest},
          {"weight_type", origin.type == kernels::WeightType::bf16 ? "bf16" : "f32"},
          {"window_bytes_per_token", growth_of(origin.config)},
          {"sampler",
           {{"seed", sampler.seed},
            {"counter", sampler.counter},
            {"recent", sampler.recent},
            {"pending_utf8_bytes", sampler.pending_utf8.size()},
            {"pending_stop_bytes", sampler.pending_stop.size()}}},
          {"layers", list},
          {"config", model::to_json(origin.config)}};
}

}  // namespace

void inspect_state(const std::string& path, const std::string& model, bool json) {
  const auto snapshot = infer::load_snapshot(path);
  std::unique_ptr<data::Tokenizer> tokenizer;
  if (!model.empty()) {
    const auto folder = model::checkpoint_folder(model);
    const auto digest =
        model::digest_of(model::Checkpoint(folder, model::Checkpoint::Packed::allowed).tensors);
    base::require(digest == snapshot.origin.digest,
                  "--model: must be the state's model, whose weights are {}, got {}",
                  base::printable(snapshot.origin.digest, 80), digest);
    tokenizer = data::tokenizer_of(folder, snapshot.origin.config.vocab_size);
  }
  const auto bytes = static_cast<int64_t>(fs::file_size(path));
  show_state(snapshot, {path, bytes}, tokenizer.get(), json);
}

void show_state(const infer::Snapshot& snapshot, const StateName& name,
                const data::Tokenizer* tokenizer, bool json) {
  std::vector<Layer> layers;
  for (int64_t i = 0; i < snapshot.origin.config.num_layers; ++i)
    layers.push_back(describe(snapshot, i, tokenizer));
  if (json) return print_json(state_json(snapshot, name, layers));
  print_state(snapshot, name, layers, tokenizer != nullptr);
}

}  // namespace bmojo::cli
