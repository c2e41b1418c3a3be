#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bmojo/base/error.h"
#include "bmojo/base/input.h"
#include "bmojo/base/printable.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/inspect.h"
#include "bmojo/cli/native_model.h"
#include "bmojo/cli/verbs.h"
#include "bmojo/cli/writing.h"
#include "bmojo/eval/chat.h"
#include "bmojo/eval/prompt.h"
#include "bmojo/model/checkpoint.h"

namespace bmojo::cli {
namespace {

struct Options {
  Common common;
  EngineChoice choice;
  Writing writing;
  eval::ChatOptions chat;
};

constexpr const char* kHelp =
    "  /save FILE   keep the conversation in a file\n"
    "  /load FILE   go on with one that was kept\n"
    "  /forget      begin anew\n"
    "  /memory      what the model remembers now\n"
    "  /help        this list\n"
    "  /quit        end, as Ctrl-D does; Ctrl-C ends a reply\n"
    "To send a message that begins with /, put a blank before it.\n";

class Session {
 public:
  explicit Session(const Options& options);

  // Reads messages and commands until they end. The exit code of the first command that failed
  // where nobody watches; 0 where somebody does.
  int talk();
  void save(const std::string& path);
  // What was said, if anything was.
  void keep(const std::string& path) {
    if (!path.empty() && from_.memory->position() > 0) save(path);
  }

 private:
  void wait_for_input();
  bool obey(std::string_view line);  // false: the chat is over
  void run_command(std::string_view name, const std::string& file);
  void answer(std::string_view message);
  void forget(const std::string& state);
  void say(std::string_view line) const;
  void note(const std::string& line) const;

  const Options& options_;
  std::unique_ptr<infer::NativeLanguageModel> model_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::unique_ptr<eval::ChatTemplate> frame_;
  eval::Continuation from_;
  const bool from_terminal_ = ::isatty(STDIN_FILENO) == 1;
  const bool streams_;
  int failed_ = 0;
};

Session::Session(const Options& options)
    : options_(options),
      model_(open_native_model(options.choice, options.common.threads)),
      tokenizer_(tokenizer_for(options.writing, options.choice.model, model_->config())),
      streams_(::isatty(STDOUT_FILENO) == 1 && !options.common.json) {
  base::require(tokenizer_ != nullptr,
                "chat: needs a tokenizer, got none in the model's folder; give --tokenizer");
  frame_ = eval::chat_template_of(model::checkpoint_folder(options.choice.model), model_->config(),
                                  *tokenizer_, options.chat);
  from_ = begin_or_load(*model_, options.writing.state_in, options.writing.seed);
}

void Session::say(std::string_view line) const {
  base::print_stderr(fmt::format("bmojo: {}\n", base::printable(line)));
}

void Session::note(const std::string& line) const {
  if (!options_.common.quiet) say(line);
}

// A signal may come just before the wait, which it then does not end.
void Session::wait_for_input() {
  constexpr int kMilliseconds = 100;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  for (bool is_there = false; !is_there;) {
    is_there = ::poll(&input, 1, kMilliseconds) > 0;
    check_interrupted();
  }
}

int Session::talk() {
  const bool is_prompted = from_terminal_ && streams_;
  if (is_prompted) note(fmt::format("{}; /help lists the commands, /quit ends", frame_->name()));
  base::LineReader lines("-", [this] { wait_for_input(); });
  std::string line;
  for (;;) {
    if (is_prompted) stream_text("> ");
    if (!lines.next(line)) break;
    if (line.empty()) continue;
    try {
      eval::require_utf8(line, lines.where());
    } catch (const base::Error& mistake) {
      if (!from_terminal_) throw;
      say(mistake.what());
      continue;
    }
    if (!line.starts_with('/')) {
      answer(line);
    } else if (!obey(line)) {
      return failed_;
    }
  }
  if (is_prompted) stream_text("\n");
  return failed_;
}

bool Session::obey(std::string_view line) {
  const auto blank = std::min(line.find(' '), line.size());
  const auto name = line.substr(0, blank);
  const auto first = line.find_first_not_of(' ', blank), last = line.find_last_not_of(' ');
  const auto rest =
      first == line.npos ? std::string() : std::string(line.substr(first, last + 1 - first));
  if (name == "/quit" && rest.empty()) return false;
  int code = 2;
  try {
    run_command(name, rest);
    return true;
  } catch (const base::Error& mistake) {
    say(mistake.what());
  } catch (const base::RunError& failure) {
    say(failure.what());
    code = 1;
  }
  if (failed_ == 0 && !from_terminal_) failed_ = code;
  return true;
}

void Session::run_command(std::string_view name, const std::string& file) {
  if (name == "/save" || name == "/load") {
    base::require(!file.empty(), "{}: needs a file, got none", name);
    name == "/save" ? save(file) : forget(file);
    return note(fmt::format("{}: {} tokens", file, base::grouped(from_.memory->position())));
  }
  constexpr std::array kOthers = {"/forget", "/memory", "/help", "/quit"};
  base::require(std::ranges::find(kOthers, name) != kOthers.end(),
                "{}: unknown command; /help lists them", base::in_quotes(name));
  base::require(file.empty(), "{}: takes nothing behind it, got {}", name, base::in_quotes(file));
  if (name == "/forget") return forget("");
  if (name == "/memory") {
    show_state(model_->snapshot(from_), {"this conversation"}, tokenizer_.get(),
               options_.common.json);
    std::fflush(stdout);  // a program may wait for it
    return;
  }
  base::print_stderr(kHelp);
}

// What was read gives way to a saved text, or to one that begins.
void Session::forget(const std::string& state) {
  const auto seed =
      state.empty() ? std::optional(static_cast<int64_t>(from_.seed)) : options_.writing.seed;
  from_ = begin_or_load(*model_, state, seed);
}

void Session::save(const std::string& path) {
  base::require(from_.memory->position() > 0, "{}: needs a conversation to keep, got none", path);
  model_->save(from_, path);
}

void Session::answer(std::string_view message) {
  auto how = options_.writing.how;
  how.is_stopped = [] { return interrupted_by() != 0; };
  const auto turn = eval::take_turn(*model_, from_, *frame_, message, how, *tokenizer_,
                                    streams_ ? stream_text : nullptr);
  if (options_.common.json)
    print_json(generated_json(turn.reply, true, turn.num_prompt, turn.num_reprocessed));
  else if (streams_)
    stream_text("\n");
  else
    fmt::print("{}\n", turn.reply.text);
  std::fflush(stdout);
  // Where somebody watches, Ctrl-C ends the reply alone; the turn is closed with the next message.
  if (from_terminal_ && interrupted_by() == SIGINT) return forget_interrupt(SIGINT);
  check_interrupted();
  if (streams_ && turn.reply.finish == "length")
    note(fmt::format("the reply was cut after {} tokens; --max-tokens N allows more",
                     turn.reply.ids.size()));
}

void run_chat(const Options& options) {
  base::require(options.choice.engine == "native", "chat: needs --engine native, got {}",
                options.choice.engine);
  base::require(!options.chat.system || options.writing.state_in.empty(),
                "--system: begins a conversation, got --state-in, which goes on with one");
  Session session(options);
  defer_interrupts();
  const auto& state_out = options.writing.state_out;
  int code = 0;
  try {
    code = session.talk();
  } catch (const Interrupted&) {
    if (::isatty(STDIN_FILENO) == 1) base::print_stderr("\n");  // behind the prompt and its ^C
    session.keep(state_out);
    throw;
  } catch (const base::RunError&) {
    session.keep(state_out);
    throw;
  }
  if (!state_out.empty()) session.save(state_out);
  if (code != 0) throw Exit{code};
}

}  // namespace

void add_chat_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  options->writing.how.max_tokens = 512;
  auto* verb = app.add_subcommand("chat", "Talk to a model");
  add_engine_flags(*verb, options->choice);
  verb->add_option_function<std::string>(
          "--system", [options](const std::string& text) { options->chat.system = text; },
          "The system message, before the first turn")
      ->option_text("TEXT");
  verb->add_option("--template", options->chat.name, "chatml or plain; the model's own by default")
      ->check(CLI::IsMember({"chatml", "plain"}))
      ->option_text("NAME");
  add_writing_flags(*verb, options->writing);
  add_common(*verb, options->common);
  verb->callback([options, verb] {
    if (verb->get_option("--seed")->count() > 0) options->writing.seed = options->common.seed;
    run_verb([&] { run_chat(*options); });
  });
}

}  // namespace bmojo::cli
