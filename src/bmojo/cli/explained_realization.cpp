// The layers of a model on one sequence, seen as realizations (docs/realization.md): the poles that
// each SSM used, what the memories added to each attention's output, and whether what the fixed
// predictor leaves is white.

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "bmojo/base/error.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/torch_verbs.h"
#include "bmojo/eval/evaluate.h"
#include "bmojo/eval/explain.h"
#include "bmojo/nn/ops/innovation.h"
#include "bmojo/realization/innovations.h"
#include "bmojo/realization/whiteness.h"
#include "bmojo/train/source.h"

// Shapes: L tokens of a call, T of the sequence, D width, E channels, N states, H heads, d head
// size.

namespace bmojo::cli {
namespace {

using eval::kKinds, eval::kMemories;
using realization::Vector, realization::View;

constexpr int64_t kLeastTokens = 64;
constexpr size_t kLags = 20;
constexpr double kLevel = 0.05;  // of the test
// Time constants are counted by their decimal logarithm. Those outside count in the first and the
// last bin. Quantiles are read from the fine bins, and are off by at most 1.2 %.
constexpr int kFirstDecade = -3, kLastDecade = 6, kFine = 100, kShown = 10;  // bins a decade
constexpr int64_t kNumFine = (kLastDecade - kFirstDecade) * kFine;

// --- the poles -----------------------------------------------------------------------------------

struct TimeConstants {
  at::Tensor counts;  // [kNumFine]
  int64_t below_one = 0, beyond_window = 0;
  double least = std::numeric_limits<double>::infinity(), most = 0;

  void add(const nn::SsmTrace& ssm, int64_t window) {
    const auto tau = nn::time_constants(ssm).flatten();
    const auto bin = ((tau.log10() - kFirstDecade) * kFine).floor().clamp(0, kNumFine - 1);
    const auto more = at::bincount(bin.to(at::kLong), {}, kNumFine);
    counts = counts.defined() ? counts + more : more;
    below_one += (tau < 1).sum().item<int64_t>();
    beyond_window += (tau > window).sum().item<int64_t>();
    least = std::min(least, tau.min().item<double>());
    most = std::max(most, tau.max().item<double>());
  }

  // In the middle of its bin.
  double quantile(double share) const {
    const auto up_to = counts.cumsum(0);
    const int64_t total = up_to[-1].item<int64_t>();
    const int64_t bin = (up_to < share * static_cast<double>(total)).sum().item<int64_t>();
    return std::pow(10, kFirstDecade + (static_cast<double>(bin) + 0.5) / kFine);
  }

  base::Json json(int64_t window) const {
    const auto shown = counts.view({-1, kFine / kShown}).sum(1);
    const double total = shown.sum().item<double>();
    base::Json edges = base::Json::array(), shares = base::Json::array();
    for (int64_t i = 0; i <= shown.size(0); ++i)
      edges.push_back(std::pow(10, kFirstDecade + static_cast<double>(i) / kShown));
    for (int64_t i = 0; i < shown.size(0); ++i) shares.push_back(shown[i].item<int64_t>());
    return {{"poles", shown.sum().item<int64_t>()},
            {"least", least},
            {"tenth", quantile(0.1)},
            {"median", quantile(0.5)},
            {"nine_tenths", quantile(0.9)},
            {"most", most},
            {"below_one", static_cast<double>(below_one) / total},
            {"beyond_window",
             window > 0 ? base::Json(static_cast<double>(beyond_window) / total) : base::Json()},
            {"edges", edges},
            {"counts", shares}};
  }
};

// --- the memories --------------------------------------------------------------------------------

// Of an output o = o_1 + o_2 + o_3, what comes from memory i is o_i·o / o·o: its part along the
// output. The three sum to 1; one that pulls against the output is negative.
struct MemoryParts {
  std::array<double, kMemories.size()> weight{}, along{};
  double energy = 0, num_weights = 0, largest = 0, error = 0;

  void add(const nn::AttentionTrace& attention, const nn::QueryRuns& runs, const at::Tensor& W_o) {
    const auto project = [&](const at::Tensor& mixed) {  // [L, H, d] -> [L, D]
      return at::matmul(mixed.flatten(1).to(at::kDouble), W_o.to(at::kDouble).t());
    };
    const auto output = project(attention.mixed);
    auto rest = output;
    for (size_t i = 0; i < kMemories.size(); ++i) {
      const auto memory = static_cast<nn::Memory>(i);
      const auto part = project(nn::attention_part(attention, runs, memory));
      const auto share = nn::attention_share(attention, runs, memory);
      rest = rest - part;
      along[i] += (part * output).sum().item<double>();
      weight[i] += share.sum(at::kDouble).item<double>();
    }
    energy += output.square().sum().item<double>();
    num_weights += static_cast<double>(attention.q.size(0) * attention.q.size(1));
    largest = std::max(largest, output.abs().max().item<double>());
    error = std::max(error, rest.abs().max().item<double>());
  }

  base::Json json() const {
    base::Json weights = base::Json::object(), parts = base::Json::object();
    for (size_t i = 0; i < kMemories.size(); ++i) {
      weights[kMemories[i]] = weight[i] / num_weights;
      parts[kMemories[i]] = along[i] / energy;
    }
    return {{"weight", weights}, {"output", parts}, {"error", error / largest}};
  }
};

// --- the innovations -----------------------------------------------------------------------------

// Channels [T, D] as series of their own; those that never change are left out.
std::vector<Vector> channels(const at::Tensor& x) {
  const auto rows = x.to(at::kDouble).t().contiguous();
  std::vector<Vector> out;
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const double* first = rows[i].data_ptr<double>();
    const Vector series(first, first + rows.size(1));
    if (std::ranges::adjacent_find(series, std::not_equal_to{}) != series.end())
      out.push_back(series);
  }
  return out;
}

double variance(const std::vector<Vector>& all) {
  double sum = 0;
  for (const auto& series : all) {
    double mean = 0;
    for (const double x : series) mean += x / static_cast<double>(series.size());
    for (const double x : series) sum += (x - mean) * (x - mean);
  }
  return sum;
}

// How white the channels are: how many the test does not refuse, the median of its statistic, and
// the root mean square over channels of the autocorrelation at each lag.
base::Json whiteness(const std::vector<Vector>& all, double variance_of_outputs) {
  int64_t num_white = 0;
  Vector statistics, square(kLags);
  for (const auto& series : all) {
    const auto test = realization::ljung_box(series, kLags);
    num_white += test.p_value >= kLevel;
    statistics.push_back(test.statistic);
    const auto rho = realization::autocorrelations(series, kLags);
    for (size_t k = 0; k < kLags; ++k)
      square[k] += rho[k] * rho[k] / static_cast<double>(all.size());
  }
  for (double& x : square) x = std::sqrt(x);
  std::ranges::sort(statistics);
  return {{"white", num_white},
          {"statistic", statistics[statistics.size() / 2]},
          {"variance", variance(all) / variance_of_outputs},
          {"autocorrelation", square}};
}

// y [T, D] is what the SSM of a layer put out. The first tokens, which are predicted from nothing,
// are left out on every side.
base::Json innovations_json(const at::Tensor& y, const model::Config& config) {
  const int64_t T = y.size(0), D = y.size(1), k = config.predictor_taps;
  const auto wide = y.to(at::kDouble).unsqueeze(0);
  const auto error = nn::prediction_error({.y = wide,
                                           .tail = at::zeros({1, k, D}, at::kDouble),
                                           .positions = at::arange(T, at::kLong).unsqueeze(0),
                                           .coefficients = nn::predictor(config)});
  const auto outputs = wide[0].slice(0, k), left = error[0].slice(0, k);
  const auto of_outputs = channels(outputs - outputs.mean(0));
  if (of_outputs.empty()) return {};
  std::vector<Vector> order_one;
  for (const auto& series : of_outputs)
    order_one.push_back(realization::order_one_residuals(series));
  const double whole = variance(of_outputs);
  return {{"channels", of_outputs.size()},
          {"tokens", T - k},
          {"outputs", whiteness(of_outputs, whole)},
          {"innovations", whiteness(channels(left), whole)},
          {"order_one", whiteness(order_one, whole)}};
}

// --- all of a layer ------------------------------------------------------------------------------

struct Study {
  TimeConstants time_constants;
  MemoryParts parts;
  std::vector<at::Tensor> outputs;  // [L, D] each, of layers that predict

  void add(const nn::Output& out, size_t layer, const nn::Model& model) {
    const auto& ssm = out.ssms[layer];
    if (ssm.dt.defined()) time_constants.add(ssm, model.config().window);
    if (out.innovations[layer].defined()) outputs.push_back(ssm.y[0]);
    if (out.attentions[layer].q.defined())
      parts.add(out.attentions[layer], out.layout->queries,
                model.parameter(fmt::format("layers.{}.attention.o_proj.weight", layer)));
  }

  base::Json json(size_t layer, const model::Config& config) const {
    const auto kind = config.kind(static_cast<int64_t>(layer));
    return {
        {"layer", layer},
        {"kind", kKinds[static_cast<size_t>(kind)]},
        {"time_constants",
         kind == model::LayerKind::attention ? base::Json() : time_constants.json(config.window)},
        {"memories", kind == model::LayerKind::ssm ? base::Json() : parts.json()},
        {"whiteness", outputs.empty() ? base::Json() : innovations_json(at::cat(outputs), config)}};
  }
};

void require_finite(const nn::Output& out) {
  if (!out.hidden.isfinite().all().item<bool>())
    throw base::RunError("explain: hidden states must be finite, got NaN or infinity");
}

// Reads a sequence segment by segment, the memories carried on, and shows each to `visit`.
void read_segments(const nn::Model& model, const data::Batch& sequence, nn::CallOptions call,
                   const std::function<void(const nn::Output& out)>& visit) {
  nn::State state;
  for (int64_t from = 0; from < sequence.length; from += eval::kEvalSegment) {
    const int64_t count = std::min(eval::kEvalSegment, sequence.length - from);
    const auto part = data::columns(sequence, from, count);
    call.wanted = train::wanted_of(model.config(), part);
    auto out = model.forward(train::tensor_of(part, part.ids), state, call);
    visit(out);
    state = std::move(out.state);
    check_interrupted();
  }
}

}  // namespace

base::Json explain_realization(const EngineChoice& choice, const data::Batch& sequence) {
  const auto model = load_model(choice.model, choice.set);
  const auto& config = model.config();
  base::require(
      config.has_ssm() && config.has_attention(),
      "explain: --realization needs a model with an SSM and with attention, got layers {}",
      config.pattern);
  base::require(sequence.length >= kLeastTokens,
                "explain: --realization needs at least {} tokens, got {}", kLeastTokens,
                sequence.length);
  torch::NoGradGuard no_grad;
  std::vector<Study> studies(model.layers().size());
  nn::CallOptions call;
  call.keep_attention = call.keep_ssm = true;
  read_segments(model, sequence, call, [&](const nn::Output& out) {
    require_finite(out);
    for (size_t i = 0; i < studies.size(); ++i) studies[i].add(out, i, model);
  });
  base::Json layers = base::Json::array();
  for (size_t i = 0; i < studies.size(); ++i) layers.push_back(studies[i].json(i, config));
  return {{"memory",
           {{"eidetic_tokens", config.eidetic_tokens},
            {"fading_tokens", config.fading_tokens},
            {"window", config.window}}},
          {"layers", layers}};
}

// --- for people ----------------------------------------------------------------------------------

namespace {

std::string percent(const base::Json& share) {
  return share.is_number() ? fmt::format("{:.1f} %", 100 * share.get<double>()) : "-";
}

// At least three.
std::string digits(const base::Json& x) {
  if (!x.is_number()) return "-";
  const double value = x.get<double>();
  return value < 1000 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

// A table of the layers that have `part`; nothing where none has.
void print_part(const base::Json& told, const char* part, const std::string& title,
                const std::string& header, const std::function<void(const base::Json&)>& row) {
  const auto& layers = told["layers"];
  if (std::ranges::all_of(layers, [&](const base::Json& each) { return each[part].is_null(); }))
    return;
  fmt::print("\n{}\n\n{}\n", title, header);
  for (const auto& each : layers) {
    if (each[part].is_null()) continue;
    fmt::print("{:>5}  {:<9}", each["layer"].get<int64_t>(), each["kind"].get<std::string>());
    row(each[part]);
  }
}

void print_whiteness(const base::Json& told) {
  bool first = true;
  for (const auto& [key, name] : {std::pair{"outputs", "outputs y"},
                                  {"innovations", "innovations"},
                                  {"order_one", "best of order 1"}}) {
    const auto& series = told[key];
    const auto white =
        fmt::format("{} of {}", series["white"].get<int64_t>(), told["channels"].get<int64_t>());
    fmt::print("{:>{}}{:<15} {:>10} {:>8} {:>9} {:>8} {:>8}\n", "", first ? 0 : 16, name, white,
               digits(series["variance"]), digits(series["statistic"]),
               digits(series["autocorrelation"][0]), digits(series["autocorrelation"][3]));
    first = false;
  }
}

}  // namespace

void print_realization(const base::Json& told) {
  print_part(told, "time_constants", "time constants of the poles exp(dt A), in tokens",
             fmt::format("{:>5}  {:<9}{:>12} {:>9} {:>9} {:>9} {:>9} {:>11}", "layer", "kind",
                         "poles", "10 %", "median", "90 %", "below 1", "> window"),
             [](const base::Json& told) {
               fmt::print("{:>12} {:>9} {:>9} {:>9} {:>9} {:>11}\n",
                          base::grouped(told["poles"].get<int64_t>()), digits(told["tenth"]),
                          digits(told["median"]), digits(told["nine_tenths"]),
                          percent(told["below_one"]), percent(told["beyond_window"]));
             });
  print_part(
      told, "memories", "what each memory adds to the output of the attention",
      fmt::format("{:>16}{:^26}  {:>22}\n", "", "weight of its keys", "part of the output") +
          fmt::format("{:>5}  {:<9}{:>8} {:>8} {:>8}  {:>8} {:>8} {:>8}  {:>8}", "layer", "kind",
                      "eidetic", "fading", "window", "eidetic", "fading", "window", "off by"),
      [](const base::Json& told) {
        for (const auto* key : {"weight", "output"}) {
          for (const auto* memory : kMemories) fmt::print("{:>8} ", percent(told[key][memory]));
          fmt::print(" ");
        }
        fmt::print("{:>8}\n", told["error"].is_number()
                                  ? fmt::format("{:.0e}", told["error"].get<double>())
                                  : "-");
      });
  print_part(told, "whiteness",
             fmt::format("is it white? Ljung-Box over {} lags, at {:.0f} %", kLags, 100 * kLevel),
             fmt::format("{:>5}  {:<9}{:<15} {:>10} {:>8} {:>9} {:>8} {:>8}", "layer", "kind",
                         "series", "white", "variance", "Q, median", "r(1)", "r(4)"),
             print_whiteness);
}

}  // namespace bmojo::cli
