#include "bmojo/cli/train_flags.h"

#include <string>
#include <type_traits>

namespace bmojo::cli {

void add_recipe_flags(CLI::App& verb) {
  train::Recipe any;
  train::for_each_field(any, [&]<typename Value>(const train::Field& field, Value&) {
    const auto name = train::flag_of(field.name);
    const std::string help(field.help), value(field.value);
    if (std::is_same_v<Value, bool>) {
      verb.add_flag(name, help);
      return;
    }
    auto* option = verb.add_option(name, help)->option_text(value)->type_name(value);
    if (std::is_same_v<Value, std::vector<std::string>>)
      option->expected(CLI::detail::expected_max_vector_size);
    if (field.name == "set") option->allow_extra_args(false);
  });
}

train::Flags recipe_flags(const CLI::App& verb) {
  train::Flags flags;
  for (const auto* option : verb.get_options()) {
    const auto field = train::field_of(option->get_lnames().front());
    if (train::kind_of(field) == train::FieldKind::none) continue;
    for (const auto& value : option->results()) flags.push_back({field, value});
  }
  return flags;
}

}  // namespace bmojo::cli
