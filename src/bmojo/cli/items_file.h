#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "bmojo/base/file.h"
#include "bmojo/base/json.h"
#include "bmojo/eval/suite_score.h"

namespace bmojo::cli {

// Results item by item: a line that says of what, then a line an item in their order. A call that
// was stopped is gone on with behind the last whole line.
class ItemsFile {
 public:
  // Without a path nothing is kept. Error naming what differs where the file is of something else.
  ItemsFile(std::filesystem::path path, const base::Json& header, const eval::SuiteData& data);

  // Of the items that the file holds already.
  const std::vector<eval::Answers>& done() const { return done_; }
  // Those that come next.
  void add(size_t first, std::span<const eval::Answers> answers);

 private:
  std::filesystem::path path_;
  const eval::SuiteData& data_;
  std::unique_ptr<base::LockedFile> lock_;
  std::vector<eval::Answers> done_;
};

}  // namespace bmojo::cli
