/** Checks of the carry's C++ that the tests must guard. Each entry disables one; at least one test must then fail. */

/** One change of a source file. */
export interface Mutation {
  readonly file: string;
  /** The check that it disables. */
  readonly check: string;
  /** Text that occurs once in the file, and its replacement. */
  readonly from: string;
  readonly to: string;
}

const of =
  (file: string) =>
  (check: string, from: string, to: string): Mutation => ({ file, check, from, to });

const keys = of('tls-keys.cc');
const records = of('tls-records.cc');
const frames = of('frame-cutter.cc');
const input = of('link-input.cc');
const output = of('link-output.cc');
const link = of('link.cc');
const stream = of('stream.cc');
const source = of('stream-output.cc');
const flow = of('flow.cc');

/** All of them, in the order of the files. */
export const MUTATIONS: readonly Mutation[] = [
  keys(
    'the tag of a record',
    'EVP_CipherFinal_ex(cipher_, bytes + sealed, &written) == 1',
    '(EVP_CipherFinal_ex(cipher_, bytes + sealed, &written), true)',
  ),
  keys(
    'the header as additional data',
    'EVP_CipherUpdate(cipher_, nullptr, &written, header, 5) == 1',
    '(written = header[0], true)',
  ),
  keys('a nonce of its own for each record', 'sequence = sequence_++', 'sequence = sequence_'),
  keys('the end of the sequence', 'sequence_ == UINT64_MAX ||', 'false ||'),
  keys('the limit of AES-GCM', 'sequence_ >= AES_GCM_RECORDS', 'false'),
  keys('the length of a secret', 'length != secretBytes(suite)', 'length > MAX_SECRET_BYTES'),
  keys(
    'the change of the secret',
    'if (done) memcpy(secret_, next',
    'if (!done) memcpy(secret_, next',
  ),
  keys('a new sequence under a new key', 'usable_ = false;\n  sequence_ = 0;', 'usable_ = false;'),
  keys('zeroing of the secret', 'OPENSSL_cleanse(secret_, sizeof secret_);', ''),
  keys('zeroing of the IV', 'OPENSSL_cleanse(iv_, sizeof iv_);', ''),
  link(
    'zeroing of the secret that is read with',
    'OPENSSL_cleanse(readSecret, sizeof readSecret);',
    '',
  ),
  link(
    'zeroing of the secret that is written with',
    'OPENSSL_cleanse(writeSecret, sizeof writeSecret);',
    '',
  ),
  records(
    'no unprotected record',
    'bytes[0] != static_cast<uint8_t>(ContentType::APPLICATION_DATA)',
    'bytes[0] == 0',
  ),
  records('the version of a record', 'bytes[1] != 3 || bytes[2] != 3', 'false'),
  records('the length of a record', 'sealed > MAX_SEALED_BYTES', 'false'),
  records('the length of its content', 'inner > RECORD_BYTES + 1', 'false'),
  records('a type in each record', 'if (inner == 0) return', 'if (inner == SIZE_MAX) return'),
  records('no record inside of a message', 'headerBytes_ > 0 && !isHandshake', 'false'),
  records(
    'the bound of records without data',
    'return idleRecords_ <= MAX_IDLE_RECORDS;',
    'return true;',
  ),
  records(
    'data ends a row of records without',
    'if (content > 0) idleRecords_ = 0;',
    'if (content > 0) {}',
  ),
  records(
    'no empty message or alert',
    'if (content == 0) return',
    'if (content == SIZE_MAX) return',
  ),
  records(
    'the known types of content',
    'if (type != static_cast<uint8_t>(ContentType::ALERT))',
    'if (false)',
  ),
  records('the length of an alert', 'if (content != 2)', 'if (content < 2)'),
  records('the level of an alert', 'bytes[0] != WARNING && bytes[0] != FATAL', 'false'),
  records(
    'tickets for clients only',
    '== NEW_SESSION_TICKET && !isServer_',
    '== NEW_SESSION_TICKET',
  ),
  records('the known messages', '!isTicket && header_[0] != KEY_UPDATE', 'false'),
  records('the length of a KeyUpdate', 'header_[0] == KEY_UPDATE && bodyBytes_ != 1', 'false'),
  records('the length of a message', 'bodyBytes_ > MAX_POST_HANDSHAKE_BYTES', 'false'),
  records('the request of a KeyUpdate', 'firstByte_ > 1', 'false'),
  records(
    'a KeyUpdate at the end of its record',
    'if (after > 0) return',
    'if (after == SIZE_MAX) return',
  ),
  records('the key of the reader', 'if (!keys_.update()) return fault', 'if (false) return fault'),
  records('the key of the writer', 'written == 0 || !keys_.update()', 'written == 0'),
  frames('the preface', 'memcmp(PREFACE + filled_, bytes + *at, part) != 0', 'false'),
  frames(
    'HEADERS have a stream',
    'if (header_.id == 0) return {"sent HEADERS',
    'if (false) return {"sent HEADERS',
  ),
  frames('a pad length', 'isPadded && left_ == 0', 'false'),
  frames('padding within the frame', 'padding_ > left_', 'false'),
  frames('the size of a frame', 'length > limits_.maxFrameSize', 'false'),
  frames('the size of a header block', 'length > limits_.maxBlockBytes', 'false'),
  frames(
    'the length of PRIORITY',
    'if (length > MAX_GOAWAY_BYTES) return {"sent a PRIORITY',
    'if (false) return {"sent a PRIORITY',
  ),
  frames(
    'the length of RST_STREAM',
    'if (length != 4) return {"sent a RST_STREAM',
    'if (false) return {"sent a RST_STREAM',
  ),
  frames(
    'the length of WINDOW_UPDATE',
    'if (length != 4) return {"sent a WINDOW_UPDATE',
    'if (false) return {"sent a WINDOW_UPDATE',
  ),
  frames('the length of PING', 'length != 8', 'false'),
  frames('the length of SETTINGS', 'length % 6 != 0', 'false'),
  frames('the number of settings', 'length > 6 * MAX_SETTINGS_PER_FRAME', 'false'),
  frames('the least of a GOAWAY', 'if (length < 8)', 'if (false)'),
  frames(
    'the most of a GOAWAY',
    'if (length > MAX_GOAWAY_BYTES) return {"sent a GOAWAY',
    'if (false) return {"sent a GOAWAY',
  ),
  frames(
    'no frame inside of a header block',
    'blockOf_ != 0 && (!continues || header_.id != blockOf_)',
    'false',
  ),
  frames('no CONTINUATION without HEADERS', 'blockOf_ == 0 && continues', 'false'),
  frames('no PUSH_PROMISE', 'header_.type == PUSH_PROMISE', 'false'),
  frames('SETTINGS first', '!greeted_ && !greets', 'false'),
  input(
    'the rest of a record is kept',
    'else partial_.assign(',
    'else if (false) partial_.assign(',
  ),
  input('an answer to a KeyUpdate', 'if (reader_.takeUpdateRequest()) rekey_ = true;', ''),
  input(
    'an alert for a wrong record',
    'if (bytes > 0) send(record, bytes);\n  }\n  const LinkCause',
    'if (bytes == SIZE_MAX) send(record, bytes);\n  }\n  const LinkCause',
  ),
  input('no input after a breach', 'deaf_ = true;\n  reading_', 'reading_'),
  input(
    'the window of the connection',
    '!connectionWindow_.take(header.length)',
    '!connectionWindow_.take(header.length) && false',
  ),
  input(
    'the window of a stream',
    '!stream->receiveWindow.take(header.length)',
    '!stream->receiveWindow.take(header.length) && false',
  ),
  input(
    'no DATA after END_STREAM',
    'if (stream->remoteEnded) {\n    stream->reset',
    'if (false) {\n    stream->reset',
  ),
  input('no DATA before an answer', 'else if (!stream->headed)', 'else if (false)'),
  input('no HEADERS after END_STREAM', 'header.type == HEADERS && stream->remoteEnded', 'false'),
  input('empty DATA spends the budget', 'content == 0 && !endsStream', 'false'),
  input('padding is given back', 'stream->discard(header.length - content);', ''),
  input('the budget of WINDOW_UPDATEs', '!windowUpdates_.spend()', 'false'),
  input(
    'no WINDOW_UPDATE of nothing on a connection',
    'if (increment == 0) return',
    'if (false) return',
  ),
  input(
    'no WINDOW_UPDATE of nothing on a stream',
    'if (increment == 0) stream->reset',
    'if (false) stream->reset',
  ),
  input('the most of the send window', 'sendWindow_ > MAX_WINDOW', 'false'),
  input(
    'no WINDOW_UPDATE on an idle stream',
    'if (isIdle(id)) {\n      return {"sent a WINDOW_UPDATE',
    'if (false) {\n      return {"sent a WINDOW_UPDATE',
  ),
  input(
    'no DATA on an idle stream',
    'if (isIdle(id)) return {"sent DATA',
    'if (false) return {"sent DATA',
  ),
  input(
    'DATA on a stream that ended is refused',
    'numberFrame(RST_STREAM, id, STREAM_CLOSED);',
    '',
  ),
  input(
    'late DATA of a reset stream is dropped',
    'resets_.end(), id) != resets_.end()',
    'resets_.end(), id) == resets_.end()',
  ),
  input('frames without progress are bounded', 'if (idle_.spend()) return {};', 'return {};'),
  input(
    'only whole HEADERS without an end join a stream',
    'header.flags != FLAG_END_HEADERS || header.length == 0',
    'header.length == 0',
  ),
  input('only a 200 joins a stream', 'block[isUpdated ? 1 : 0] == STATUS_200', 'true'),
  stream('an unused socket is given back', 'counts_->unused = recall();', 'recall();'),
  input(
    'the reader of control frames is waited for',
    'waitsForReader() || isUnknown(MAX_UNKNOWN_BYTES)',
    'isUnknown(MAX_UNKNOWN_BYTES)',
  ),
  input('unknown bytes are bounded', 'waitsForReader() || isUnheard()', 'waitsForReader()'),
  input(
    'one slow reader does not stop a link',
    ' && (isWithheld() || pump_->unknownBytes > MAX_UNKNOWN_BYTES_OF_ALL)',
    '',
  ),
  input(
    'unknown bytes of all links are bounded',
    '(isWithheld() || pump_->unknownBytes > MAX_UNKNOWN_BYTES_OF_ALL)',
    'isWithheld()',
  ),
  input('a quarter of a window is not unknown', '(isWithheld() || pump_->', '(pump_->'),
  input('content after an interim answer', 'stream->content > 0 && !endStream', 'false'),
  link('no reset of a closed stream', 'dead_ || finished_.has(id)', 'dead_'),
  input('no join behind content', 'isFirst && stream->offered()', 'stream->offered()'),
  input(
    'held bytes are told before their window is given back',
    'if (deaf_ || isWithheld()) return;',
    'if (deaf_) return;',
  ),
  output(
    'the bound of frames that wait',
    'controlOut_.size() - controlSent_ > MAX_CONTROL_BYTES',
    'false',
  ),
  output('the window of the peer', 'if (sendWindow_ <= 0 && !stream->probes())', 'if (false)'),
  output('streams take turns', 'alone ? left : std::min(left, TURN_BYTES)', 'left'),
  source(
    'one small read makes no quick stream',
    'quick = isSmall && wasSmall_;',
    'quick = isSmall;',
  ),
  output('quick streams go first', '(stream->quick ? quickRow_ : row_)', 'row_'),
  output(
    'quick streams leave half of a batch to others',
    'row_.empty() ? space : space / 2',
    'space',
  ),
  output('small batches under pressure', 'if (pressed_) return PRESSED_BATCH_BYTES;', ''),
  output(
    'a key is changed in time',
    'rekey_ || askRekey_ || writer_.rekeyDue()',
    'rekey_ || askRekey_',
  ),
  output('no output after a key that is spent', 'if (record == 0) {', 'if (false) {'),
  output(
    'what the socket did not take is kept',
    'rest_.assign(reinterpret_cast<const char*>(bytes + sent), length - sent);',
    '',
  ),
  output('bytes that wait are charged', 'hold(0, static_cast<int64_t>(rest_.size()));', ''),
  input(
    'an end behind data is read',
    'if (static_cast<size_t>(got) < wanted && !ending_) readable_ = false;',
    'if (static_cast<size_t>(got) < wanted) readable_ = false;',
  ),
  output(
    'the last records of a peer are read',
    'sendError_ = error;\n  writable_ = false;\n  readable_ = true;',
    'sendError_ = error;\n  writable_ = false;',
  ),
  link(
    'the window of the peer after SETTINGS',
    'fits = entry.second->grow(by) && fits',
    'fits = fits',
  ),
  link(
    'the window of the connection follows its size',
    'connectionWindow_.resize(connection);',
    '',
  ),
  link(
    'the windows of open streams follow their size',
    'entry.second->resizeWindow(stream);',
    '{}',
  ),
  stream(
    'a smaller window is given back by its own share',
    'receiveWindow.resize(size);\n  // The peer may now wait for window that was too little to give back before.\n  consumed(0);',
    'receiveWindow.resize(size);',
  ),
  link('a request that is its own end', 'if (stream != nullptr) stream->remoteEnd();', ''),
  input(
    'the number of streams that are known as reset',
    'if (resets_.size() < MAX_REMEMBERED_STREAMS) {',
    'if (true) {',
  ),
  of('pump.cc')(
    'only links of the listener that has gone end',
    'if (entry.second->listener() == command->listener) abandoned',
    'abandoned',
  ),
  link('streams end with their link', 'dead_ = true;\n  endStreams();', 'dead_ = true;'),
  link(
    'a socket for a stream that ended',
    'if (found == streams_.end()) return;\n  Stream* stream',
    'if (found == streams_.end()) {\n    command->fd = -1;\n    return;\n  }\n  Stream* stream',
  ),
  stream(
    'what the application has read is given back',
    'if (back > 0) link_->numberFrame',
    'if (back < 0) link_->numberFrame',
  ),
  stream('the announced length of content', 'announced_ >= 0 && content != announced_', 'false'),
  stream('a reset before END_STREAM is no end', '!endKnown_ || !isClean(code)', '!isClean(code)'),
  stream('a reset with an error is no end', '!endKnown_ || !isClean(code)', '!endKnown_'),
  stream('a failed join is no end', 'if (fd_ >= 0 || localEnded) {', 'if (fd_ >= 0) {'),
  stream('a cut resets the application', 'closeSocket(cut);', 'closeSocket(false);'),
  stream('held bytes are charged', 'link_->hold(static_cast<int64_t>(kept), 0);', ''),
  stream('held bytes are discharged', 'link_->hold(-static_cast<int64_t>(taken), 0);', ''),
  stream(
    'END_STREAM waits for the bytes before it',
    'const bool isWaiting = isJoined ? !pending_.empty() && !unwritable_ :',
    'const bool isWaiting = isJoined ? false :',
  ),
  link('no key to read with outlives its link', 'reader_.keys().clear();', ''),
  link('no key to write with outlives its link', 'writer_.keys().clear();', ''),
  link('a stream delivers after its link', 'if (!stream->delivers()) ends', 'if (true) ends'),
  link(
    'a stream that delivers can be cut',
    'isLate = command->kind == Command::Kind::RESET',
    'isLate = false',
  ),
  stream('a reset before the join keeps what came', ': over_ && !localEnded;', ': false;'),
  stream('the return of what a slow reader has read', '  dropSent();\n  size_t', '  size_t'),
  stream('a socket that takes no more', 'unwritable_ = true;\n  writable_', 'writable_'),
  source(
    'the window of the stream',
    'return std::min(sendWindow_, link_->sendWindow());',
    'return link_->sendWindow();',
  ),
  source(
    'frames are no larger than agreed',
    'const size_t frameBytes = link_->peerFrameSize();',
    'const size_t frameBytes = LARGEST_FRAME_SIZE;',
  ),
  source('bytes behind urgent data are read', 'readable_ = urgent_;', 'readable_ = false;'),
  source('a failure of the socket needs no window', 'next == Next::FAILURE', 'false'),
  output('an end waits for no window', 'std::erase(blocked_, stream) > 0', 'false'),
  source('a failure of the socket is no end', 'if (got <= 0 && failure_ != 0) {', 'if (got < 0) {'),
  source('what was sent spends window', 'sendWindow_ -= static_cast<int64_t>(bytes);', ''),
  flow('the budget of frames', 'if (tokens_ < 1) return false;', ''),
  flow(
    'the connection window is used up',
    'if (bytes > left_) return false;\n  left_ -= bytes;\n  unreleased_ += bytes;',
    'if (bytes > left_) return false;\n  unreleased_ += bytes;',
  ),
  flow('the connection window is given back', 'left_ += bytes;\n  return bytes;', 'return bytes;'),
  flow('a stalled reader holds no more', '!isSmall && (pressed || held > MAX_HELD_BYTES)', 'false'),
  flow('the stream window is given back', 'left_ += released;', ''),
  flow(
    'the stream window follows its size',
    'void StreamWindow::resize(int64_t size) {\n  left_ += size - size_;',
    'void StreamWindow::resize(int64_t size) {',
  ),
];
