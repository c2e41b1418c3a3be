// The one file that sees the SentencePiece library: a module of its own (bmojo/data/pieces.h).
#include "bmojo/data/pieces.h"

#include <sentencepiece_processor.h>

namespace bmojo::data {
namespace {

std::string reason(const sentencepiece::util::Status& status) {
  return status.ok() ? "" : status.ToString();
}

class LibraryPieces final : public Pieces {
 public:
  std::string load(std::string_view model) override {
    return reason(processor_.LoadFromSerializedProto({model.data(), model.size()}));
  }
  std::string encode(std::string_view text, std::vector<int>& ids) const override {
    return reason(processor_.Encode({text.data(), text.size()}, &ids));
  }
  std::string decode(const std::vector<int>& ids, std::string& text) const override {
    return reason(processor_.Decode(ids, &text));
  }
  int size() const override { return processor_.GetPieceSize(); }
  int end_of_sentence() const override { return processor_.eos_id(); }
  bool is_unused(int id) const override { return processor_.IsUnused(id); }
  bool is_byte(int id) const override { return processor_.IsByte(id); }
  std::string piece(int id) const override { return processor_.IdToPiece(id); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace
}  // namespace bmojo::data

extern "C" __attribute__((visibility("default"))) bmojo::data::Pieces* bmojo_make_pieces() {
  return new bmojo::data::LibraryPieces;
}
