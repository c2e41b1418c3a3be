#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bmojo/data/tokenizer.h"
#include "bmojo/eval/generate.h"
#include "bmojo/eval/language_model.h"

// A conversation: turns of a user and replies of a model, in one text that is read once. Where it
// stands is told by the tokens read last, so a state is all that there is to keep of it.

namespace bmojo::eval {

// How turns are written as tokens. What people write can mark nothing: special tokens in it count
// as ordinary text.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  virtual std::string_view name() const = 0;
  // What stands before the first message.
  virtual std::vector<int64_t> opening() const = 0;
  // What closes the turn that is open behind the tokens read last; nothing where none is.
  virtual std::vector<int64_t> closing(std::span<const int64_t> recent) const = 0;
  // A message of the user, and what opens the reply.
  virtual std::vector<int64_t> message(std::string_view text) const = 0;
  // Lets a reply end where its turn does.
  virtual void end_replies(GenerateOptions& how) const = 0;
};

struct ChatOptions {
  std::string name;                   // chatml or plain; empty: as the model's folder has it
  std::optional<std::string> system;  // the system message; none: the template's own, if any
};

// By `name`, or else by the template in a checkpoint's folder: chat_template.jinja, or
// chat_template in tokenizer_config.json. One with <|im_start|> is chatml, and none is plain. Error
// where it is of another kind, or where the tokenizer lacks the template's tokens. Keeps the
// tokenizer.
std::unique_ptr<ChatTemplate> chat_template_of(const std::filesystem::path& folder,
                                               const model::Config& config,
                                               const data::Tokenizer& tokenizer,
                                               const ChatOptions& options);

// The system message that a ChatML template in Jinja gives where a conversation has none.
std::optional<std::string> default_system_message(std::string_view jinja);

struct Turn {
  Generated reply = {};
  int64_t num_prompt = 0;       // tokens read before the reply
  int64_t num_reprocessed = 0;  // tokens read once more: none
};

// Reads a message behind what was read, and writes the reply. Only what is new is read; a turn is
// closed when the next message comes.
Turn take_turn(const LanguageModel& model, Continuation& from, const ChatTemplate& frame,
               std::string_view message, GenerateOptions how, const data::Tokenizer& tokenizer,
               const std::function<void(std::string_view)>& on_text = {});

}  // namespace bmojo::eval
