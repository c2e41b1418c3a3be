#include <optional>
#include <vector>

#include "bmojo/base/run_file.h"
#include "tests/fuzz/support.h"

namespace bmojo::fuzz {
namespace {

// As a file has it, every value as text.
std::string written(const std::vector<base::RunFileItem>& items) {
  std::string file;
  for (const auto& item : items) {
    file += base::toml_text(item.key) + " = " + (item.is_list ? "[" : "");
    for (const auto& value : item.values)
      file += base::toml_text(value) + (item.is_list ? ", " : "");
    file += item.is_list ? "]\n" : "\n";
  }
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = text_of(data, size);
  std::optional<std::vector<base::RunFileItem>> items;
  parse_or_refuse([&] { items = base::parse_run_file(text, "file"); });
  if (items) {
    // A refusal is a finding here.
    const auto again = base::parse_run_file(written(*items), "again");
    demand(again.size() == items->size(), "items must read back as they were written");
    for (size_t i = 0; i < again.size(); ++i)
      demand(again[i].key == (*items)[i].key && again[i].values == (*items)[i].values,
             "item must read back as it was written", again[i].key);
  }
  parse_or_refuse([&] { base::parse_tables(text, "file"); });
  return 0;
}

}  // namespace bmojo::fuzz
