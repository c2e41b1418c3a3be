#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "bmojo/data/tokenizer.h"

namespace bmojo::data {

// Ids to text one at a time, for a terminal. A character whose bytes have not all come yet is held
// back, so what is returned is always whole UTF-8; bytes that belong to none become U+FFFD. The
// texts one after the other are what decode() gives for all ids at once, in valid UTF-8.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // Goes on behind other text, of which `held` was held back.
  TextStream(const Tokenizer& tokenizer, std::string held)
      : tokenizer_(tokenizer), held_(std::move(held)), started_(true) {}

  std::string push(int32_t id);
  std::string finish();  // what was held back; the stream begins anew
  const std::string& held() const { return held_; }

 private:
  const Tokenizer& tokenizer_;
  std::string held_;
  bool started_ = false;
};

}  // namespace bmojo::data
