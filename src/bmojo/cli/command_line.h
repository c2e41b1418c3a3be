#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "bmojo/base/number.h"
#include "bmojo/model/choice.h"

namespace bmojo::cli {

inline constexpr const char* kNoCurrentFolder =
    "current folder: must exist, got one that has been removed; cd to another";

using AddVerb = void (*)(CLI::App& app);

// Verbs that another program runs, and those that it runs when `takes` the arguments behind them;
// `run` does not return.
struct Elsewhere {
  std::vector<std::string> verbs;
  bool (*takes)(std::span<char*> arguments) = nullptr;
  void (*run)(char** argv) = nullptr;
};

// Runs the verb in argv and turns whatever it throws into one line on stderr and an exit code:
// 0 done, 1 the run failed, 2 the caller's mistake, 128 + signal interrupted. Where nobody reads
// stdout any more (`bmojo … | head`), it ends without a word, as SIGPIPE would: 141.
int run(int argc, char** argv, const char* program, std::initializer_list<AddVerb> verbs,
        const Elsewhere& elsewhere = {});

// SIGINT, SIGTERM and SIGHUP end the program at once, until defer_interrupts(): then they wait for
// the next check_interrupted(), which throws, so that destructors remove what is partly written. A
// second one of the same kind ends the program at once again.
struct Interrupted {
  int signal;
  std::string message = "interrupted; nothing partly written is left";
};
// Ends the program with a code after everything has been said.
struct Exit {
  int code;
};
void end_with_130();  // from here on, whichever signal it is
void defer_interrupts();
void check_interrupted();
int interrupted_by();               // the signal that waits, or 0
void forget_interrupt(int signal);  // it was for what is over now; the next one is a first one

// A flag with a number, in base 10.
template <typename Number>
struct NumberFlag {
  std::string name, help;
  Number least, most;
  std::string text;  // of its value, for the help
};
template <typename Number>
CLI::Option* add_number(CLI::App& verb, const NumberFlag<std::type_identity_t<Number>>& flag,
                        Number& value) {
  const auto set = [flag, &value](const std::string& text) {
    value = base::parse_number(text, flag.name, flag.least, flag.most);
  };
  return verb.add_option_function<std::string>(flag.name, set, flag.help)->option_text(flag.text);
}

// The flags every verb has.
struct Common {
  bool quiet = false, json = false;
  int64_t threads = 0;  // 0 = all cores
  int64_t seed = 0;
};
void add_common(CLI::App& verb, Common& common);

// The flags of a model choice; error where --set names a field twice.
void add_model_choice(CLI::App& verb, model::ModelChoice& choice);

// `--set` where the weights are given: only the fields no weight depends on.
void add_memory_settings(CLI::App& verb, std::vector<std::string>& settings);

// For `--json`: one line, never an exception; bytes that are not UTF-8 are replaced.
void print_json(const base::Json& json);

}  // namespace bmojo::cli
