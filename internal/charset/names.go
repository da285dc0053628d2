package charset

// find returns the decoder of a lower case name, or nil. It knows the names of IANA and of the
// WHATWG; what they name differently is IANA's. The names of ASCII mean Windows-1252, as with the
// WHATWG.
func find(name string) decoder {
	switch name {
	case "csutf8", "unicode-1-1-utf-8", "unicode11utf8", "unicode20utf8", "utf-8", "utf8",
		"x-unicode20utf8", "x-utf_8j":
		return fromUTF8
	case "csutf16", "utf-16", "utf16":
		return fromUTF16
	case "csutf16be", "unicodefffe", "utf-16be", "utf16be":
		return fromUTF16BE
	case "csunicode", "csutf16le", "iso-10646-ucs-2", "ucs-2", "unicode", "unicodefeff", "utf-16le",
		"utf16le":
		return fromUTF16LE
	case "ansi_x3.110-1983", "cp819", "csisolatin1", "ibm819", "iso-8859-1", "iso-ir-100", "iso_8859-1",
		"iso_8859-1:1987", "isolatin1", "l1", "latin1":
		return bytewise("iso-8859-1")
	case "csisolatin2", "iso-8859-2", "iso-ir-101", "iso8859-2", "iso88592", "iso_8859-2",
		"iso_8859-2:1987", "isolatin2", "l2", "latin2":
		return bytewise("iso-8859-2")
	case "csisolatin3", "iso-8859-3", "iso-ir-109", "iso8859-3", "iso88593", "iso_8859-3",
		"iso_8859-3:1988", "isolatin3", "l3", "latin3":
		return bytewise("iso-8859-3")
	case "csisolatin4", "iso-8859-4", "iso-ir-110", "iso8859-4", "iso88594", "iso_8859-4",
		"iso_8859-4:1988", "isolatin4", "l4", "latin4":
		return bytewise("iso-8859-4")
	case "csisolatincyrillic", "cyrillic", "iso-8859-5", "iso-ir-144", "iso8859-5", "iso88595",
		"iso_8859-5", "iso_8859-5:1988", "isolatincyrillic":
		return bytewise("iso-8859-5")
	case "arabic", "asmo-708", "csiso88596e", "csiso88596i", "csisolatinarabic", "ecma-114",
		"iso-8859-6", "iso-8859-6-e", "iso-8859-6-i", "iso-ir-127", "iso8859-6", "iso88596", "iso88596e",
		"iso88596i", "iso_8859-6", "iso_8859-6-e", "iso_8859-6-i", "iso_8859-6:1987", "isolatinarabic":
		return bytewise("iso-8859-6")
	case "csisolatingreek", "ecma-118", "elot_928", "greek", "greek8", "iso-8859-7", "iso-ir-126",
		"iso8859-7", "iso88597", "iso_8859-7", "iso_8859-7:1987", "isolatingreek", "sun_eu_greek":
		return bytewise("iso-8859-7")
	case "csiso88598e", "csiso88598i", "csisolatinhebrew", "hebrew", "iso-8859-8", "iso-8859-8-e",
		"iso-8859-8-i", "iso-ir-138", "iso8859-8", "iso88598", "iso88598e", "iso88598i", "iso_8859-8",
		"iso_8859-8-e", "iso_8859-8-i", "iso_8859-8:1988", "isolatinhebrew", "logical", "visual":
		return bytewise("iso-8859-8")
	case "csisolatin5", "iso-8859-9", "iso-ir-148", "iso_8859-9", "iso_8859-9:1989", "isolatin5", "l5",
		"latin5":
		return bytewise("iso-8859-9")
	case "csisolatin6", "iso-8859-10", "iso-ir-157", "iso8859-10", "iso885910", "iso_8859-10:1992",
		"isolatin6", "l6", "latin6":
		return bytewise("iso-8859-10")
	case "csiso885913", "iso-8859-13", "iso8859-13", "iso885913":
		return bytewise("iso-8859-13")
	case "csiso885914", "iso-8859-14", "iso-celtic", "iso-ir-199", "iso8859-14", "iso885914",
		"iso_8859-14", "iso_8859-14:1998", "l8", "latin8":
		return bytewise("iso-8859-14")
	case "csiso885915", "csisolatin9", "iso-8859-15", "iso8859-15", "iso885915", "iso_8859-15", "l9",
		"latin-9":
		return bytewise("iso-8859-15")
	case "csiso885916", "iso-8859-16", "iso-ir-226", "iso885916", "iso_8859-16", "iso_8859-16:2001",
		"l10", "latin10":
		return bytewise("iso-8859-16")
	case "cp1250", "cswindows1250", "windows-1250", "windows1250", "x-cp1250":
		return bytewise("windows-1250")
	case "cp1251", "cswindows1251", "windows-1251", "windows1251", "x-cp1251":
		return bytewise("windows-1251")
	case "ansi_x3.4-1968", "ansi_x3.4-1986", "ascii", "cp1252", "cp367", "csascii", "cswindows1252",
		"ibm367", "iso-ir-6", "iso646-us", "iso8859-1", "iso88591", "iso_646.irv:1991", "us", "us-ascii",
		"windows-1252", "windows1252", "x-cp1252":
		return bytewise("windows-1252")
	case "cp1253", "cswindows1253", "windows-1253", "windows1253", "x-cp1253":
		return bytewise("windows-1253")
	case "cp1254", "cswindows1254", "iso8859-9", "iso88599", "windows-1254", "windows1254", "x-cp1254":
		return bytewise("windows-1254")
	case "cp1255", "cswindows1255", "windows-1255", "windows1255", "x-cp1255":
		return bytewise("windows-1255")
	case "cp1256", "cswindows1256", "windows-1256", "windows1256", "x-cp1256":
		return bytewise("windows-1256")
	case "cp1257", "cswindows1257", "windows-1257", "windows1257", "x-cp1257":
		return bytewise("windows-1257")
	case "cp1258", "cswindows1258", "windows-1258", "windows1258", "x-cp1258":
		return bytewise("windows-1258")
	case "cswindows874", "dos-874", "iso-8859-11", "iso8859-11", "iso885911", "tis-620", "windows-874",
		"windows874":
		return bytewise("windows-874")
	case "cskoi8r", "koi", "koi8", "koi8-r", "koi8_r", "koi8r":
		return bytewise("koi8-r")
	case "cskoi8u", "koi8-ru", "koi8-u", "koi8u":
		return bytewise("koi8-u")
	case "csmacintosh", "mac", "macintosh", "x-mac-roman":
		return bytewise("macintosh")
	case "x-mac-cyrillic", "x-mac-ukrainian":
		return bytewise("x-mac-cyrillic")
	case "cp037", "csibm037", "ebcdic-cp-ca", "ebcdic-cp-nl", "ebcdic-cp-us", "ebcdic-cp-wt", "ibm037":
		return bytewise("ibm037")
	case "437", "cp437", "cspc8codepage437", "ibm437", "pc8codepage437":
		return bytewise("ibm437")
	case "850", "cp850", "cspc850multilingual", "ibm850", "pc850multilingual":
		return bytewise("ibm850")
	case "852", "cp852", "cspcp852", "ibm852", "pcp852":
		return bytewise("ibm852")
	case "855", "cp855", "csibm855", "ibm855":
		return bytewise("ibm855")
	case "ccsid00858", "cp00858", "csibm00858", "ibm00858", "pc-multilingual-850+euro":
		return bytewise("ibm00858")
	case "860", "cp860", "csibm860", "ibm860":
		return bytewise("ibm860")
	case "862", "cp862", "cspc862latinhebrew", "ibm862", "pc862latinhebrew":
		return bytewise("ibm862")
	case "863", "cp863", "csibm863", "ibm863":
		return bytewise("ibm863")
	case "865", "cp865", "csibm865", "ibm865":
		return bytewise("ibm865")
	case "866", "cp866", "csibm866", "ibm866":
		return bytewise("ibm866")
	case "csibm1047", "ibm-1047", "ibm1047":
		return bytewise("ibm1047")
	case "ccsid01140", "cp01140", "csibm01140", "ebcdic-us-37+euro", "ibm01140":
		return bytewise("ibm01140")
	case "x-user-defined":
		return bytewise("x-user-defined")
	case "cseucpkdfmtjapanese", "euc-jp", "eucpkdfmtjapanese",
		"extended_unix_code_packed_format_for_japanese", "x-euc-jp":
		return eucJP
	case "csiso2022jp", "iso-2022-jp", "iso2022jp":
		return iso2022JP
	case "csshiftjis", "ms932", "ms_kanji", "shift-jis", "shift_jis", "shiftjis", "sjis", "windows-31j",
		"x-sjis":
		return pairs("shift_jis")
	case "cseuckr", "csksc56011987", "euc-kr", "euckr", "iso-ir-149", "korean", "ks_c_5601-1987",
		"ks_c_5601-1989", "ksc5601", "ksc_5601", "windows-949":
		return pairs("euc-kr")
	case "csgb18030", "gb18030":
		return gb18030
	case "chinese", "cp936", "csgb2312", "csgbk", "csiso58gb231280", "gb2312", "gb_2312", "gb_2312-80",
		"gbk", "iso-ir-58", "ms936", "windows-936", "x-gbk":
		return pairs("gbk")
	case "hz-gb-2312":
		return hz
	case "big5", "big5-hkscs", "cn-big5", "csbig5", "x-x-big5":
		return pairs("big5")
	case "csiso2022kr", "iso-2022-cn", "iso-2022-cn-ext", "iso-2022-kr", "replacement":
		return replaced
	}
	return nil
}
