#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Questions of known suites in one common form. Texts are put together as lm-evaluation-harness
// 0.4.13 does; docs/evaluation.md describes the files.

namespace bmojo::eval {

// What is asked: the likeliest of some continuations, whether a continuation is the likeliest of
// all, how likely a document is as a whole, or an answer in the model's own words.
enum class Question { choice, last_word, document, answer };

// A context stands behind the item's document, where it has one.
struct Choice {
  std::string context, continuation;
};

struct Item {
  std::string where;  // FILE:LINE
  size_t part = 0;
  std::vector<Choice> choices = {};  // one where nothing is chosen
  int64_t gold = 0;                  // of the choices
  // Of an answer: texts that are right. It stands behind the only choice's context; or it is the
  // likeliest of several continuations, where no other words are right.
  std::vector<std::string> golds = {};
  // What every context begins with. Items about one document stand together and share it.
  std::shared_ptr<const std::string> document = {};
  // Of a document, as it stood in its file.
  int64_t num_words = 0, num_bytes = 0;
};

struct Suite;

// Parts are files: BLiMP has one for each of its paradigms.
struct SuiteData {
  const Suite* suite = nullptr;
  std::vector<std::string> parts = {};
  std::vector<Item> items = {};
};

// How a suite is answered in words.
struct Answering {
  std::string_view measure;
  double (*score)(std::string_view text, std::span<const std::string> golds) = nullptr;
  int64_t max_tokens = 0;
  bool is_line = false;  // it ends with its line
};

// What the texts of a suite are made for.
struct Making {
  // Of a text as a model reads it.
  std::function<int64_t(const std::string& text)> count_tokens;
  int64_t length = 4096;      // at most so many tokens, with the answer
  int64_t answer_tokens = 0;  // of these
  uint64_t seed = 0;
};

struct Suite {
  std::string_view name, title;
  Question question = Question::choice;
  // Whether choices differ in length for reasons of their own, so that they are also compared by
  // the character and by the byte.
  bool is_normed = false;
  bool has_parts = false;
  Answering answering = {};
  // Adds a file's items, at most `limit`.
  void (*read)(const std::filesystem::path& file, size_t limit, std::vector<Item>& items) = nullptr;
  // Or an item of a suite without files, which depends on nothing else.
  Item (*make)(const Making& making, uint64_t number) = nullptr;
};

// With the document.
std::string context_of(const Item& item, const Choice& choice);

// Error with the nearest name where there is no such suite.
const Suite& find_suite(std::string_view name);

// The first `count` items of a suite that is made. Error naming --length where that is too short.
SuiteData make_suite(const Suite& suite, const Making& making, size_t count,
                     const std::function<void(size_t num_made)>& between_items = {});

// `path` is the suite's file, or a folder that holds it under a name that begins like the suite's.
// At most `limit` items of each file. Error naming file and line where data are malformed.
SuiteData read_suite(const Suite& suite, const std::filesystem::path& path, size_t limit);

}  // namespace bmojo::eval
