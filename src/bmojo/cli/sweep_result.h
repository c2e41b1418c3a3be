#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bmojo/base/json.h"

namespace bmojo::cli {

struct Interval {
  double low = 0, high = 1;
};
// Where the share lies that `right` of `count` draws come from, at 95 % (Wilson's score interval).
Interval wilson(int64_t right, int64_t count);

// Whether the losses of the last tenth lie below those of the tenth before by more than twice the
// standard error of the difference; nothing where a tenth has less than two.
std::optional<bool> is_still_falling(const std::vector<double>& losses);

// Of a run's metrics.jsonl: {steps, tokens, seconds, stopped_early, train_loss, still_falling,
// curve}; the curve holds [step, loss, accuracy] of each validation.
base::Json metrics_summary(const std::filesystem::path& run);

// The newest line of a metrics.jsonl that is being written; null where there is none.
base::Json last_metrics(const std::filesystem::path& run);

// The lines of a results file, none where there is no file. A line torn by a kill is cut off.
std::vector<base::Json> load_results(const std::filesystem::path& path);

}  // namespace bmojo::cli
