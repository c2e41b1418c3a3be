#include <algorithm>
#include <utility>

#include "bmojo/data/text_stream.h"
#include "bmojo/library/access.h"

namespace bmojo::v0 {

using library::guarded, library::guarded_files;
namespace {

// An id that the tokenizer itself will judge: none is cut down to one that it has.
std::int32_t narrow(std::int64_t id) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(id, INT32_MIN, INT32_MAX));
}

}  // namespace

struct [[gnu::visibility("hidden")]] TextStream::Impl {
  Tokenizer tokenizer;
  data::TextStream stream;
};

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(const std::string& name_or_file)
    : impl_(guarded_files(
          [&] { return std::make_shared<const Impl>(data::load_tokenizer(name_or_file)); })) {}

std::vector<std::int64_t> Tokenizer::encode(std::string_view text) const {
  return guarded([&] {
    const auto ids = impl_->tokenizer->encode(text);
    return std::vector<std::int64_t>(ids.begin(), ids.end());
  });
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids) const {
  return guarded([&] {
    std::vector<std::int32_t> narrowed(ids.size());
    std::ranges::transform(ids, narrowed.begin(), narrow);
    return impl_->tokenizer->decode(narrowed);
  });
}

std::int64_t Tokenizer::vocab_size() const noexcept { return impl_->tokenizer->vocab_size(); }
std::int64_t Tokenizer::end_of_document() const noexcept {
  return impl_->tokenizer->end_of_document();
}
const std::string& Tokenizer::kind() const noexcept { return impl_->tokenizer->name(); }

TextStream::TextStream(Tokenizer tokenizer, bool continues) {
  const auto& inner = Access::of(tokenizer);
  impl_ = std::make_unique<Impl>(std::move(tokenizer),
                                 continues ? data::TextStream(inner, "") : data::TextStream(inner));
}
TextStream::TextStream(TextStream&& other) noexcept = default;
TextStream& TextStream::operator=(TextStream&& other) noexcept = default;
TextStream::~TextStream() = default;

std::string TextStream::push(std::int64_t id) {
  return guarded([&] { return impl_->stream.push(narrow(id)); });
}
std::string TextStream::finish() {
  return guarded([&] { return impl_->stream.finish(); });
}

}  // namespace bmojo::v0
