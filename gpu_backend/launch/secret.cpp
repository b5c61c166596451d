#include "gpu_backend/launch/secret.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <system_error>

#include "core/base/file_descriptor.hpp"
#include "core/base/text.hpp"
#include "gpu_backend/launch/launch_sources.hpp"
#include "gpu_backend/launch/variables.hpp"

namespace mfsdp {
namespace {

constexpr std::string_view kSecret = "MFSDP_SECRET";
constexpr std::string_view kSecretFile = "MFSDP_SECRET_FILE";
constexpr std::size_t kLeastSecret = 16;   ///< bytes
constexpr std::size_t kMostSecret = 4096;  ///< bytes

const std::uint8_t* octets(std::span<const std::byte> bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

/// The secret itself never appears in a message.
tl::unexpected<Error> refuse(std::string_view variable, std::string what) {
  return fail(fmt::format("environment, {}", variable), std::move(what));
}

Result<std::string> checked(std::string_view variable, std::string secret) {
  if (secret.size() < kLeastSecret || secret.size() > kMostSecret)
    return refuse(variable, fmt::format("expected a secret of {} to {} bytes, got {} bytes",
                                        kLeastSecret, kMostSecret, secret.size()));
  return secret;
}

Result<std::string> read_secret_file(const std::string& path) {
  const auto refuse_file = [&](const std::string& what) {
    return refuse(kSecretFile, printable(path) + " " + what);
  };
  // Without O_NONBLOCK, opening a pipe without a writer would block forever.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return refuse_file("cannot be opened: " + std::generic_category().message(errno));
  struct stat status{};
  if (::fstat(file.number(), &status) != 0)
    return refuse_file("cannot be read: " + std::generic_category().message(errno));
  if (!S_ISREG(status.st_mode)) return refuse_file("is no regular file");
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return refuse_file(fmt::format("has mode {:04o}, so that others may use it: expected 0600",
                                   status.st_mode & 07777U));
  std::string text(kMostSecret + 2, '\0');  // a newline, and one byte to detect a longer file
  const ssize_t count = ::read(file.number(), text.data(), text.size());
  if (count < 0) return refuse_file("cannot be read: " + std::generic_category().message(errno));
  text.resize(static_cast<std::size_t>(count));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return checked(kSecretFile, std::move(text));
}

/// The secret that the user has set; none if there is none.
Result<std::optional<std::string>> read_secret(const Environment& environment) {
  const auto secret = find_variable(environment, kSecret);
  const auto file = find_variable(environment, kSecretFile);
  if (secret && file)
    return refuse(kSecretFile, fmt::format("is set beside {}: expected one of them", kSecret));
  if (secret) return checked(kSecret, *secret);
  if (file) return read_secret_file(*file);
  return std::nullopt;
}

std::string random_secret() {
  std::string text;
  for (const std::byte byte : random_bits()) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

Bits256 hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  hmac_sha256_ctx context{};
  Bits256 digest{};
  static_assert(sizeof digest == SHA256_DIGEST_SIZE);
  hmac_sha256_set_key(&context, key.size(), octets(key));
  hmac_sha256_update(&context, message.size(), octets(message));
  hmac_sha256_digest(&context, digest.size(), reinterpret_cast<std::uint8_t*>(digest.data()));
  return digest;
}

bool equal_in_constant_time(const Bits256& a, const Bits256& b) {
  return memeql_sec(a.data(), b.data(), a.size()) != 0;
}

Bits256 random_bits() {
  Bits256 bits{};
  // Up to 256 bytes are returned completely. The call fails only on kernels without a generator.
  if (::getentropy(bits.data(), bits.size()) != 0)
    throw std::system_error(errno, std::generic_category(), "getentropy");
  return bits;
}

Result<void> settle_secret(const Environment& environment, bool insecure, RankLaunch& launch) {
  const RankPlace& place = launch.place;
  MFSDP_LET(given, read_secret(environment));
  if (given && insecure)
    return fail("--insecure-rendezvous",
                fmt::format("contradicts {}: unset the variable, or leave the flag out",
                            environment.contains(kSecret) ? kSecret : kSecretFile));
  const bool on_one_host = place.local_world_size == place.world_size;
  if (given) {
    launch.secret = std::move(*given);
  } else if (on_one_host && (launch.starts_ranks || place.world_size == 1)) {
    launch.secret = random_secret();
  } else if (on_one_host && !insecure) {
    launch.secret = "";
    launch.meeting.address = kThisHost;
  } else if (insecure) {
    launch.secret = "";
  } else {
    return refuse(kSecret,
                  fmt::format("is not set, and {} ranks are on several hosts: expected a secret of "
                              "{} bytes at least, the same on all hosts, or {} with the path of a "
                              "file of mode 0600; --insecure-rendezvous does without",
                              place.world_size, kLeastSecret, kSecretFile));
  }
  return {};
}

}  // namespace mfsdp
