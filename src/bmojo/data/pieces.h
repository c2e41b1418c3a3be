#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bmojo::data {

// A SentencePiece model. The library behind it defines names that torch has too (FLAGS_minloglevel
// is 4 bytes there and 32 here): in one program the two overwrite each other's memory. So it lives
// in a module, bmojo-sentencepiece.so beside the programs, that finds its own names first.
class Pieces {
 public:
  virtual ~Pieces() = default;

  // What went wrong, or nothing.
  virtual std::string load(std::string_view model) = 0;
  virtual std::string encode(std::string_view text, std::vector<int>& ids) const = 0;
  virtual std::string decode(const std::vector<int>& ids, std::string& text) const = 0;

  virtual int size() const = 0;
  virtual int end_of_sentence() const = 0;  // -1: none
  virtual bool is_unused(int id) const = 0;
  virtual bool is_byte(int id) const = 0;
  virtual std::string piece(int id) const = 0;
};

// RunError where the module is missing.
std::unique_ptr<Pieces> make_pieces();

}  // namespace bmojo::data
