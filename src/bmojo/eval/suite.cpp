#include "bmojo/eval/suite.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/nearest.h"
#include "bmojo/base/printable.h"
#include "bmojo/eval/suite_answer.h"
#include "bmojo/eval/suite_files.h"
#include "bmojo/eval/suite_needles.h"

namespace bmojo::eval {
namespace fs = std::filesystem;
namespace {

constexpr std::array kSuites = {
    Suite{.name = "lambada",
          .title = "LAMBADA",
          .question = Question::last_word,
          .read = read_lambada},
    Suite{.name = "hellaswag", .title = "HellaSwag", .is_normed = true, .read = read_hellaswag},
    Suite{.name = "piqa", .title = "PIQA", .is_normed = true, .read = read_piqa},
    Suite{.name = "arc_easy", .title = "ARC-Easy", .is_normed = true, .read = read_arc},
    Suite{.name = "arc_challenge", .title = "ARC-Challenge", .is_normed = true, .read = read_arc},
    Suite{.name = "winogrande", .title = "WinoGrande", .read = read_winogrande},
    Suite{.name = "blimp", .title = "BLiMP", .has_parts = true, .read = read_blimp},
    Suite{.name = "quality", .title = "QuALITY", .is_normed = true, .read = read_quality},
    Suite{.name = "qasper",
          .title = "Qasper",
          .question = Question::answer,
          .answering = {"f1", score_qasper, 256, true},
          .read = read_qasper},
    Suite{.name = "narrativeqa",
          .title = "NarrativeQA",
          .question = Question::answer,
          .answering = {"f1", score_f1, 256, true},
          .read = read_narrativeqa},
    Suite{.name = "swde",
          .title = "SWDE",
          .question = Question::answer,
          .answering = {"contains", score_contained, 48, true},
          .read = read_swde},
    Suite{.name = "niah_single",
          .title = "RULER, single needle",
          .question = Question::answer,
          .answering = {"contains", score_contained, 128, false},
          .make = make_niah_single},
    Suite{.name = "ruler_vt",
          .title = "RULER, variable tracking",
          .question = Question::answer,
          .answering = {"contains", score_contained, 30, false},
          .make = make_ruler_vt},
    Suite{.name = "wikitext",
          .title = "WikiText",
          .question = Question::document,
          .read = read_wikitext}};

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& suite : kSuites) all.emplace_back(suite.name);
  return all;
}

// By name, so that the order of parts is that of no file system.
std::vector<fs::path> files_of(const Suite& suite, const fs::path& path) {
  if (fs::is_regular_file(path)) return {path};
  base::require(fs::is_directory(path), "--suite-data: must be a file or a folder, got {}",
                base::shown(path));
  const std::string prefix(suite.has_parts ? "" : suite.name);
  const bool has_own = suite.has_parts && fs::is_directory(path / suite.name);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(has_own ? path / suite.name : path)) {
    const auto kind = entry.path().extension();
    if (entry.path().filename().string().starts_with(prefix) &&
        (kind == ".jsonl" || (kind == ".txt" && !suite.has_parts)))
      files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::vector<std::string> found;
  for (const auto& file : files) found.push_back(base::printable(file.filename().string()));
  base::require(!files.empty(), "--suite-data: must hold {}*.jsonl{}, got none in {}", prefix,
                suite.has_parts ? "" : fmt::format(" or {}*.txt", prefix), base::shown(path));
  base::require(files.size() == 1 || suite.has_parts,
                "--suite-data: must hold one file of {}, got {}; name the file", suite.name,
                fmt::join(found, ", "));
  return files;
}

}  // namespace

std::string context_of(const Item& item, const Choice& choice) {
  return item.document ? *item.document + choice.context : choice.context;
}

const Suite& find_suite(std::string_view name) {
  const auto at = std::ranges::find(kSuites, name, &Suite::name);
  if (at != kSuites.end()) return *at;
  const auto meant = base::nearest(name, names());
  base::fail("--suite: must be {}, got {}{}", fmt::join(names(), ", "), base::in_quotes(name),
             meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

SuiteData make_suite(const Suite& suite, const Making& making, size_t count,
                     const std::function<void(size_t num_made)>& between_items) {
  SuiteData data{.suite = &suite, .parts = {std::string(suite.name)}};
  for (size_t i = 0; i < count; ++i) {
    data.items.push_back(suite.make(making, i));
    if (between_items) between_items(i + 1);
  }
  return data;
}

SuiteData read_suite(const Suite& suite, const fs::path& path, size_t limit) {
  SuiteData data{.suite = &suite};
  for (const auto& file : files_of(suite, path)) {
    const size_t before = data.items.size();
    suite.read(file, limit, data.items);
    base::require(data.items.size() > before, "{}: must hold at least one item, got none",
                  base::shown(file));
    for (size_t i = before; i < data.items.size(); ++i) data.items[i].part = data.parts.size();
    data.parts.push_back(file.stem().string());
  }
  return data;
}

}  // namespace bmojo::eval
