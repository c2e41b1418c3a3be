#include "bmojo/data/own_tokenizer.h"

#include <string>
#include <tuple>

#include "bmojo/base/error.h"
#include "bmojo/base/input.h"
#include "bmojo/base/printable.h"
#include "bmojo/data/tokenizer.h"

namespace bmojo::data {
namespace fs = std::filesystem;

base::Json load_progress(const fs::path& checkpoint) {
  const auto path = checkpoint / kProgressFile;
  return base::parse_json(base::read_text(path), path.string());
}

bool require_tokenizer_of(const fs::path& checkpoint, const TokenData& data) {
  std::string name, digest;
  const auto digests = tokenizer_digests(checkpoint, data.tokenizer_name());
  if (!digests.empty()) {
    for (const auto& [file, known] : digests)
      if (known == data.tokenizer_digest()) return true;
    std::tie(name, digest) = *digests.begin();
  } else {  // Bytes have no file, but a run knows what it read.
    if (!fs::exists(checkpoint / kProgressFile)) return false;
    const auto progress = load_progress(checkpoint);
    if (!progress.is_object() || !progress.contains("tokenizer") ||
        progress.at("tokenizer").is_null())
      return false;
    const auto& known = progress.at("tokenizer");
    const auto field = [&](const char* key) {
      base::require(known.is_object() && known.contains(key) && known.at(key).is_string(),
                    "{}: tokenizer must have a {} in quotes, got {}",
                    base::printable((checkpoint / kProgressFile).string()), key,
                    base::printable(known.dump()));
      return known.at(key).get<std::string>();
    };
    name = field("name");
    digest = field("digest");
  }
  base::require(digest == data.tokenizer_digest(),
                "--data: must be of the model's tokenizer, {} {}, got {} {}", base::printable(name),
                digest, base::printable(data.tokenizer_name()),
                base::printable(data.tokenizer_digest()));
  return true;
}

}  // namespace bmojo::data
