package s3_test

import (
	"testing"

	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/buckettest"
	"github.com/kitbackend/kit/storage/bucket/s3"
)

func TestBucket(t *testing.T) {
	buckettest.Run(t, func(t testing.TB) bucket.Bucket { return buckettest.S3(t) })
}

func TestParse(t *testing.T) {
	cfg, err := s3.Parse("http://key:sec%2Fret@127.0.0.1:7070/bucket/app?region=eu-1&public=https://cdn.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Endpoint != "http://127.0.0.1:7070" || cfg.PublicEndpoint != "https://cdn.example.com" || cfg.Region != "eu-1" || cfg.Bucket != "bucket" ||
		cfg.Prefix != "app/" || cfg.AccessKeyID != "key" || cfg.SecretAccessKey != "sec/ret" {
		t.Errorf("got %+v", cfg)
	}
	for _, bad := range []string{"", "host/bucket", "ftp://a:b@host/bucket", "http://a:b@host", "http://%zz"} {
		if _, err := s3.Parse(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
