#include "bmojo/cli/sweep_result.h"

#include <cmath>
#include <fstream>
#include <numeric>
#include <span>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/input.h"

namespace bmojo::cli {
namespace {
namespace fs = std::filesystem;

struct Spread {
  double mean = 0, variance_of_mean = 0;
};

Spread spread_of(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, squares / (n - 1) / n};
}

// Whole lines only: the last one may be in the middle of its writing.
std::vector<std::string> whole_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(text.substr(at, end - at));
  return lines;
}

}  // namespace

Interval wilson(int64_t right, int64_t count) {
  if (count == 0) return {};
  constexpr double kZ = 1.959963984540054;  // 95 % of a normal distribution lie within ± this
  const auto n = static_cast<double>(count);
  const double share = static_cast<double>(right) / n, scale = 1 + kZ * kZ / n;
  const double centre = (share + kZ * kZ / (2 * n)) / scale;
  const double reach = kZ / scale * std::sqrt(share * (1 - share) / n + kZ * kZ / (4 * n * n));
  return {std::max(0.0, centre - reach), std::min(1.0, centre + reach)};
}

std::optional<bool> is_still_falling(const std::vector<double>& losses) {
  const size_t tenth = losses.size() / 10;
  if (tenth < 2) return {};
  const std::span all(losses);
  const auto last = spread_of(all.last(tenth));
  const auto before = spread_of(all.last(2 * tenth).first(tenth));
  const double error = std::sqrt(last.variance_of_mean + before.variance_of_mean);
  return before.mean - last.mean > 2 * error;
}

base::Json metrics_summary(const fs::path& run) {
  const auto path = run / "metrics.jsonl";
  std::vector<double> losses;
  base::Json curve = base::Json::array(), last;
  for (const auto& line : whole_lines(base::read_text(path, SIZE_MAX))) {
    last = base::parse_json(line, base::shown(path));
    if (last.at("loss").is_number()) losses.push_back(last.at("loss"));
    if (last.contains("val_loss"))
      curve.push_back(
          {last.at("step"), last.at("val_loss"), last.value("val_accuracy", base::Json())});
  }
  base::require(!last.is_null(), "{}: must hold a step, got none", base::shown(path));
  const auto tail = std::span(losses).last(std::min(losses.size(), losses.size() / 10 + 1));
  const auto falling = is_still_falling(losses);
  return {{"steps", last.at("step")},
          {"tokens", last.at("tokens")},
          {"seconds", last.at("seconds")},
          {"stopped_early", last.value("stopped", false)},
          {"train_loss", tail.empty() ? base::Json() : base::Json(spread_of(tail).mean)},
          {"still_falling", falling ? base::Json(*falling) : base::Json()},
          {"curve", curve}};
}

base::Json last_metrics(const fs::path& run) {
  constexpr std::streamoff kEnough = 16384;  // bytes; a line has a few hundred
  std::ifstream file(run / "metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!file) return {};
  const auto size = static_cast<std::streamoff>(file.tellg());
  file.seekg(std::max<std::streamoff>(size - kEnough, 0));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto lines = whole_lines(text);
  if (lines.empty()) return {};
  auto json = base::Json::parse(lines.back(), nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : base::Json();
}

std::vector<base::Json> load_results(const fs::path& path) {
  std::vector<base::Json> results;
  if (!fs::exists(path)) return results;
  const auto text = base::read_text(path, SIZE_MAX);
  for (const auto& line : whole_lines(text)) {
    const auto where = fmt::format("{}:{}", base::shown(path), results.size() + 1);
    results.push_back(base::parse_json(line, where));
    base::require(results.back().is_object() && results.back().contains("recipe"),
                  "{}: must be a result with its recipe, got another line; move the file", where);
  }
  if (!text.empty() && text.back() != '\n')
    base::write_text(path, text.substr(0, text.rfind('\n') + 1));
  return results;
}

}  // namespace bmojo::cli
