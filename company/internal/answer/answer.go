// Package answer turns errors of the protocol into HTTP answers.
package answer

import (
	"errors"

	"countersign/internal/strictjson"
	"countersign/internal/web"
	"countersign/poppy"
)

// Error returns err as a [web.Error] if it is or wraps a [poppy.Error], with the status, headers and body that it has on the
// surface; any other error as it is. The accepted challenges are those of [poppy.Error.Response].
func Error(err error, surface poppy.Surface, accepted ...poppy.Challenge) error {
	protocolError, ok := errors.AsType[*poppy.Error](err)
	if !ok {
		return err
	}
	status, header, body, encodingErr := protocolError.Response(surface, accepted...)
	if encodingErr != nil {
		return errors.Join(err, encodingErr)
	}
	return &web.Error{
		Status: status, Code: string(protocolError.Code), Header: header, Body: strictjson.Raw(body), Cause: protocolError.Cause,
	}
}
