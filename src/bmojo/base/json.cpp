#include "bmojo/base/json.h"

#include <algorithm>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/base/input.h"
#include "bmojo/base/printable.h"

namespace bmojo::base {
namespace {

constexpr size_t kMaxDepth = 64;

class DocumentBuilder final : public JsonEvents {
 public:
  using JsonEvents::JsonEvents;

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool start_object(size_t) override { return open(Json::value_t::object); }
  bool start_array(size_t) override { return open(Json::value_t::array); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    // The vector beneath, since emplace() searches every earlier name: quadratic in a vocabulary.
    open_.back()->get_ref<Json::object_t&>().emplace_back(std::move(name), nullptr);
    return true;
  }

  bool end_object() override {
    std::vector<std::string_view> names;
    for (const auto& [name, value] : open_.back()->get_ref<Json::object_t&>()) {
      names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end())
      fail("{}: {} must appear once, got it twice", subject(), in_quotes(*twice));
    return close();
  }

 private:
  // The new value's address holds until it is closed: its parent grows only after that.
  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      auto& items = parent.get_ref<Json::array_t&>();
      items.push_back(std::move(value));
      return &items.back();
    }
    Json& slot = parent.get_ref<Json::object_t&>().back().second;
    slot = std::move(value);
    return &slot;
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json::value_t type) {
    require(open_.size() < kMaxDepth, "{}: must nest at most {} deep, got more", subject(),
            kMaxDepth);
    open_.push_back(place(Json(type)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;
};

}  // namespace

bool JsonEvents::parse_error(size_t byte, const std::string&,
                             const nlohmann::detail::exception& error) {
  // "[id] parse error at line 1, column 2: syntax error while parsing value - WHAT; last read …"
  // or, of a number beyond double's range, "[id] WHAT".
  std::string_view what = error.what();
  const size_t dash = what.find(" - "), bracket = what.find("] ");
  if (dash != what.npos) {
    what.remove_prefix(dash + 3);
  } else if (bracket != what.npos) {
    what.remove_prefix(bracket + 2);
  }
  what = what.substr(0, what.find(';'));
  fail("{}: must be valid JSON, got {} at byte {}", subject_, printable(what, 120), byte);
}

void parse_json(std::string_view text, JsonEvents& events) {
  const auto other = mix_up(text);
  require(other.empty(), "{}: must be valid JSON, got {}", events.subject(), other);
  // The lexer takes a NUL for the end of its input and would accept whatever follows it.
  const size_t nul = text.find('\0');
  require(nul == text.npos, "{}: must be valid JSON, got a NUL at byte {}", events.subject(),
          nul + 1);
  Json::sax_parse(text.begin(), text.end(), &events);
}

Json parse_json(std::string_view text, std::string_view subject) {
  DocumentBuilder builder{std::string(subject)};
  parse_json(text, builder);
  return builder.take();
}

}  // namespace bmojo::base
