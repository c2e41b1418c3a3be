#include "bmojo/eval/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/input.h"
#include "bmojo/base/json.h"
#include "bmojo/base/printable.h"
#include "bmojo/eval/prompt.h"
#include "bmojo/model/tokenizer_files.h"

namespace bmojo::eval {
namespace fs = std::filesystem;
namespace {

using Ids = std::vector<int64_t>;
constexpr std::string_view kStart = "<|im_start|>", kEnd = "<|im_end|>";

Ids ordinary_ids(const data::Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode_ordinary(text);
  return {ids.begin(), ids.end()};
}

Ids joined(std::initializer_list<Ids> parts) {
  Ids ids;
  for (const auto& part : parts) ids.insert(ids.end(), part.begin(), part.end());
  return ids;
}

bool ends_with(std::span<const int64_t> ids, const Ids& end) {
  return ids.size() >= end.size() && std::ranges::equal(ids.last(end.size()), end);
}

// <|im_start|>role\ncontent<|im_end|>\n, one after the other.
class ChatMl final : public ChatTemplate {
 public:
  ChatMl(const data::Tokenizer& tokenizer, std::optional<std::string> system)
      : tokenizer_(tokenizer),
        system_(std::move(system)),
        start_(tokenizer.special_id(kStart)),
        end_(tokenizer.special_id(kEnd)) {
    base::require(start_ >= 0 && end_ >= 0,
                  "chatml: tokenizer must have the special tokens {} and {}, got none; give "
                  "--template plain",
                  kStart, kEnd);
    newline_ = ordinary_ids(tokenizer, "\n");
  }

  std::string_view name() const override { return "chatml"; }
  Ids opening() const override { return system_ ? whole_turn("system", *system_) : Ids(); }
  Ids closing(std::span<const int64_t> recent) const override {
    if (ends_with(recent, joined({{end_}, newline_}))) return {};
    return ends_with(recent, {end_}) ? newline_ : joined({{end_}, newline_});
  }
  Ids message(std::string_view text) const override {
    return joined({whole_turn("user", text), {start_}, ordinary_ids(tokenizer_, "assistant\n")});
  }
  void end_replies(GenerateOptions& how) const override { how.ends.push_back(end_); }

 private:
  Ids whole_turn(std::string_view role, std::string_view text) const {
    const auto content = ordinary_ids(tokenizer_, fmt::format("{}\n{}", role, text));
    return joined({{start_}, content, {end_}, newline_});
  }

  const data::Tokenizer& tokenizer_;
  std::optional<std::string> system_;
  int64_t start_, end_;
  Ids newline_;
};

// A dialogue as people write it down, for models that know no other: [SYSTEM\n]User: …\nAssistant:
// …. Between two turns the text always ends with "User:".
class Plain final : public ChatTemplate {
 public:
  Plain(const model::Config& config, const data::Tokenizer& tokenizer,
        std::optional<std::string> system)
      : config_(config), tokenizer_(tokenizer), system_(std::move(system)) {}

  std::string_view name() const override { return "plain"; }
  Ids opening() const override {
    auto ids = ordinary_ids(tokenizer_, system_ ? *system_ + kUser : kUser.substr(1));
    mark_beginning(config_, tokenizer_, ids);
    return ids;
  }
  Ids closing(std::span<const int64_t> recent) const override {
    std::vector<int32_t> ids;  // the weights may have rows for ids that the tokenizer does not have
    for (const auto id : recent)
      if (id < tokenizer_.vocab_size()) ids.push_back(static_cast<int32_t>(id));
    return tokenizer_.decode(ids).ends_with(kUser) ? Ids() : ordinary_ids(tokenizer_, kUser);
  }
  Ids message(std::string_view text) const override {
    return ordinary_ids(tokenizer_, fmt::format(" {}\nAssistant:", text));
  }
  void end_replies(GenerateOptions& how) const override { how.stop.push_back(kUser); }

 private:
  inline static const std::string kUser = "\nUser:";

  const model::Config& config_;
  const data::Tokenizer& tokenizer_;
  std::optional<std::string> system_;
};

// A template as a folder holds it; `where` names it in messages.
struct TemplateText {
  std::string where, text;
};

// tokenizer_config.json has one text, or several by name.
std::optional<std::string> template_in(const base::Json& config, const std::string& subject) {
  const auto found = config.is_object() ? config.find("chat_template") : config.end();
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array())
    for (const auto& each : *found)
      if (each.is_object() && each.value("name", base::Json()) == "default" &&
          each.contains("template") && each.at("template").is_string())
        return each.at("template").get<std::string>();
  base::fail("{}: chat_template must be a text, or a list with one named default, got {}", subject,
             base::printable(found->dump(), 60));
}

std::optional<TemplateText> template_of(const fs::path& folder) {
  if (const auto path = folder / model::kChatTemplateFile; fs::exists(path))
    return TemplateText{base::shown(path), base::read_text(path)};
  const auto path = folder / model::kTokenizerConfigFile;
  if (!fs::exists(path)) return std::nullopt;
  const auto where = base::shown(path);
  auto text = template_in(base::parse_json(base::read_text(path), where), where);
  return text ? std::optional(TemplateText{where, std::move(*text)}) : std::nullopt;
}

bool is_chatml(std::string_view jinja) { return jinja.find(kStart) != jinja.npos; }

[[noreturn]] void refuse_template(const TemplateText& found) {
  // By what only they have.
  constexpr std::array kKinds = {std::pair("<|start_header_id|>", "that of Llama 3"),
                                 std::pair("[INST]", "that of Llama 2 or Mistral"),
                                 std::pair("<start_of_turn>", "that of Gemma"),
                                 std::pair("<|user|>", "that of Zephyr or Phi"),
                                 std::pair("<|User|>", "that of DeepSeek")};
  const auto kind = std::ranges::find_if(
      kKinds, [&](const auto& each) { return found.text.find(each.first) != std::string::npos; });
  base::fail("{}: chat template must be ChatML, got {}; give --template chatml or plain",
             found.where,
             kind == kKinds.end() ? fmt::format("another: '{}'", base::printable(found.text, 40))
                                  : std::string(kind->second));
}

}  // namespace

std::optional<std::string> default_system_message(std::string_view jinja) {
  constexpr std::string_view kSystem = "<|im_start|>system";
  for (size_t at = jinja.find(kSystem); at != jinja.npos; at = jinja.find(kSystem, at + 1)) {
    // In a literal of Jinja's; what is put together of several is a message that was given.
    const char quote = at == 0 ? '\0' : jinja[at - 1];
    if (quote != '\'' && quote != '"') continue;
    std::string text;
    auto rest = jinja.substr(at + kSystem.size());
    while (!rest.empty() && rest.front() != quote && !rest.starts_with(kEnd)) {
      const bool is_escaped = rest.front() == '\\' && rest.size() > 1;
      const char c = is_escaped ? rest[1] : rest[0];
      text += is_escaped && c == 'n' ? '\n' : is_escaped && c == 't' ? '\t' : c;
      rest.remove_prefix(is_escaped ? 2 : 1);
    }
    if (rest.starts_with(kEnd) && text.starts_with('\n')) return text.substr(1);
  }
  return std::nullopt;
}

std::unique_ptr<ChatTemplate> chat_template_of(const fs::path& folder, const model::Config& config,
                                               const data::Tokenizer& tokenizer,
                                               const ChatOptions& options) {
  if (options.system) require_utf8(*options.system, "--system");
  std::optional<TemplateText> found;
  if (options.name != "plain") found = template_of(folder);
  if (options.name.empty() && found && !is_chatml(found->text)) refuse_template(*found);
  if (options.name == "plain" || (options.name.empty() && !found))
    return std::make_unique<Plain>(config, tokenizer, options.system);
  auto system = options.system;
  if (!system && found && is_chatml(found->text)) system = default_system_message(found->text);
  return std::make_unique<ChatMl>(tokenizer, std::move(system));
}

Turn take_turn(const LanguageModel& model, Continuation& from, const ChatTemplate& frame,
               std::string_view message, GenerateOptions how, const data::Tokenizer& tokenizer,
               const std::function<void(std::string_view)>& on_text) {
  const int64_t num_read = model.num_read(), position = from.memory->position();
  const auto prompt = joined(
      {position == 0 ? frame.opening() : frame.closing(from.recent), frame.message(message)});
  read_prompt(model, prompt, from);
  frame.end_replies(how);
  Turn turn{.num_prompt = std::ssize(prompt)};
  turn.reply = generate(model, from, how, &tokenizer, on_text);
  turn.num_reprocessed = model.num_read() - num_read - (from.memory->position() - position);
  return turn;
}

}  // namespace bmojo::eval
