#include "bmojo/cli/items_file.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/base/input.h"
#include "bmojo/base/printable.h"

namespace bmojo::cli {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostBytes = size_t{1} << 36;  // of a file that is gone on with

void check_header(std::string_view line, const base::Json& header, const std::string& subject) {
  const auto found = base::parse_json(line, subject);
  for (const auto& [name, value] : header.items()) {
    const auto other = found.is_object() && found.contains(name) ? found[name] : base::Json();
    base::require(other == value, "{}: {} must be {}, got {}; give a new file", subject, name,
                  base::printable(value.dump()), base::printable(other.dump(), 60));
  }
}

}  // namespace

ItemsFile::ItemsFile(fs::path path, const base::Json& header, const eval::SuiteData& data)
    : path_(std::move(path)), data_(data) {
  if (path_.empty()) return;
  const auto shown = base::shown(path_);
  base::require(!fs::exists(path_) || fs::is_regular_file(path_),
                "{}: must be a regular file, got another", shown);
  lock_ = std::make_unique<base::LockedFile>(path_, "--items");
  const auto text = base::read_text(path_, kMostBytes);
  // A line without its end was being written when the program stopped.
  const auto whole = std::string_view(text).substr(0, text.rfind('\n') + 1);
  size_t number = 0;
  for (size_t at = 0; at < whole.size() && done_.size() < data.items.size(); ++number) {
    const size_t end = whole.find('\n', at);
    const auto line = whole.substr(at, end - at);
    const auto where = fmt::format("{}:{}", shown, number + 1);
    at = end + 1;
    if (number == 0)
      check_header(line, header, where);
    else
      done_.push_back(eval::answers_of_line(base::parse_json(line, where), data.items[number - 1],
                                            static_cast<int64_t>(number) - 1, where));
  }
  base::require(!whole.empty() || text.empty(),
                "{}: must be a file of --items, got another; give a new file", shown);
  if (whole.size() < text.size()) fs::resize_file(path_, whole.size());
  if (whole.empty()) base::append_text(path_, header.dump() + "\n");
}

void ItemsFile::add(size_t first, std::span<const eval::Answers> answers) {
  if (path_.empty()) return;
  std::string lines;
  for (size_t i = 0; i < answers.size(); ++i)
    lines += eval::item_line(*data_.suite, data_.items[first + i], static_cast<int64_t>(first + i),
                             answers[i])
                 .dump() +
             "\n";
  base::append_text(path_, lines);
}

}  // namespace bmojo::cli
