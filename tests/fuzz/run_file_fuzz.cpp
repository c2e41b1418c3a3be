#include <optional>
#include <vector>

#include "bmojo/base/run_file.h"
#include "tests/fuzz/support.h"

namespace {

// As a file has it, every value as text.
std::string written(const std::vector<bmojo::RunFileItem>& items) {
  std::string file;
  for (const auto& item : items) {
    file += bmojo::toml_text(item.key) + " = " + (item.is_list ? "[" : "");
    for (const auto& value : item.values)
      file += bmojo::toml_text(value) + (item.is_list ? ", " : "");
    file += item.is_list ? "]\n" : "\n";
  }
  return file;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bmojo;
  const auto text = fuzz::text_of(data, size);
  std::optional<std::vector<RunFileItem>> items;
  fuzz::parse_or_refuse([&] { items = parse_run_file(text, "file"); });
  if (items) {
    // A refusal is a finding here.
    const auto again = parse_run_file(written(*items), "again");
    fuzz::demand(again.size() == items->size(), "items must read back as they were written");
    for (size_t i = 0; i < again.size(); ++i)
      fuzz::demand(again[i].key == (*items)[i].key && again[i].values == (*items)[i].values,
                   "item must read back as it was written", again[i].key);
  }
  fuzz::parse_or_refuse([&] { parse_tables(text, "file"); });
  return 0;
}
